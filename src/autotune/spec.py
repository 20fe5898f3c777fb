"""YAML and command-line values in, domain values out; the only room with pydantic."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from autotune.domain.layout import LAYOUT, layouts
from autotune.domain.settings import Value
from autotune.domain.space import (
    ChoiceKnob,
    FloatKnob,
    IntKnob,
    Knob,
    Rule,
    SearchSpace,
)
from autotune.errors import InputError


LAYOUT_SIZES = frozenset({"tensor_parallel_size", "pipeline_parallel_size"})
ModelT = TypeVar("ModelT", bound=BaseModel)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _KnobModel(_Model):
    affects_output: bool = False
    needs_restart: bool = True


class IntKnobModel(_KnobModel):
    """A whole number in a range."""

    type: Literal["int"]
    low: int
    high: int
    step: int = Field(default=1, ge=1)
    log: bool = False

    @model_validator(mode="after")
    def _check_range(self) -> IntKnobModel:
        _check_low_high(self.low, self.high)
        if self.log and (self.low < 1 or self.step != 1):
            raise ValueError("a log knob needs low >= 1 and step 1")
        return self

    def to_knob(self, name: str) -> Knob:
        """The frozen knob."""
        return IntKnob(name, **self.model_dump(exclude={"type"}))


class FloatKnobModel(_KnobModel):
    """A real number in a range."""

    type: Literal["float"]
    low: float
    high: float
    step: float | None = Field(default=None, gt=0)
    log: bool = False

    @model_validator(mode="after")
    def _check_range(self) -> FloatKnobModel:
        _check_low_high(self.low, self.high)
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("a log knob needs low > 0 and no step")
        return self

    def to_knob(self, name: str) -> Knob:
        """The frozen knob."""
        return FloatKnob(name, **self.model_dump(exclude={"type"}))


class ChoiceKnobModel(_KnobModel):
    """One of several values."""

    type: Literal["choice"]
    choices: tuple[bool | int | float | str | None, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_choices(self) -> ChoiceKnobModel:
        if len({(type(c), c) for c in self.choices}) != len(self.choices):
            raise ValueError("a choice stands twice")
        return self

    def to_knob(self, name: str) -> Knob:
        """The frozen knob."""
        return ChoiceKnob(name, **self.model_dump(exclude={"type"}))


class LayoutKnobModel(_Model):
    """Every tensor x pipeline split over the study's devices."""

    type: Literal["layout"]


KnobModel = Annotated[
    IntKnobModel | FloatKnobModel | ChoiceKnobModel | LayoutKnobModel,
    Field(discriminator="type"),
]


class RuleModel(_Model):
    """A bound between two settings; see ``domain.space.Rule``."""

    left: str
    relation: Literal["at_most", "at_least"]
    right: str | int | float
    when: dict[str, bool | int | float | str | None] = {}


class SpaceModel(_Model):
    """A search space file."""

    name: str
    fixed: dict[str, bool | int | float | str | None] = {}
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], str] = {}
    knobs: dict[str, KnobModel]
    rules: tuple[RuleModel, ...] = ()

    @model_validator(mode="after")
    def _check_knobs(self) -> SpaceModel:
        both = sorted(set(self.knobs) & set(self.fixed))
        if both:
            raise ValueError(f"both fixed and a knob: {', '.join(both)}")
        return self


class _OneOfEachKey(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, not the last one's win."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.value in seen and isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, f"{key.value} stands twice", key.start_mark
            )
        seen.add(str(key.value))
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


_OneOfEachKey.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _check_low_high(low: float, high: float) -> None:
    if low >= high:
        raise ValueError(f"low ({low}) must be below high ({high})")


def space_names() -> tuple[str, ...]:
    """Names of the search spaces that ship with the package."""
    return tuple(sorted(p.stem for p in _space_folder().glob("*.yaml")))


def load_space(
    name_or_path: str, *, device_count: int, splits: tuple[str, ...] | None = None
) -> SearchSpace:
    """The search space of that name, or in that file.

    A layout knob takes ``splits``, or every split of ``device_count`` devices where
    nothing is known of the model.

    Raises:
        InputError: There is none, or it is malformed; names file, key and value.
    """
    path = _space_path(name_or_path)
    model = _validated(SpaceModel, _read_yaml(path), path)
    splits = layouts(max(device_count, 1)) if splits is None else splits
    knobs = [
        knob
        for name, knob_model in model.knobs.items()
        if (knob := _knob(name, knob_model, splits)) is not None
    ]
    rules = tuple(Rule(r.left, r.relation, r.right, r.when) for r in model.rules)
    return SearchSpace(model.name, model.fixed, model.environment, tuple(knobs), rules)


def _knob(name: str, model: KnobModel, splits: tuple[str, ...]) -> Knob | None:
    if isinstance(model, LayoutKnobModel):
        return ChoiceKnob(LAYOUT, splits) if len(splits) > 1 else None
    return model.to_knob(name)


def parse_fixes(pairs: tuple[str, ...]) -> dict[str, Value]:
    """``knob=value`` pairs as typed values; YAML decides the type.

    Raises:
        InputError: A pair has no ``=``, a knob stands twice, or two contradict.
    """
    fixes: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name or not text:
            raise InputError(f"--fix {pair!r}: write it as knob=value")
        if name in fixes:
            raise InputError(
                f"--fix {name} is given twice ({fixes[name]!r} and {text}); keep one"
            )
        fixes[name] = _scalar(pair, text)
    for name in fixes:
        top = name.partition(".")[0]
        if top != name and top in fixes:
            raise InputError(f"--fix {name} contradicts --fix {top}; keep one")
    return fixes


def with_fixes(space: SearchSpace, fixes: Mapping[str, Value]) -> SearchSpace:
    """The space with ``fixes`` held in every trial and in the baseline.

    Raises:
        InputError: What is fixed breaks a rule of the space, whatever the knobs do.
    """
    held = {*fixes, *((LAYOUT,) if LAYOUT_SIZES & set(fixes) else ())}
    knobs = tuple(k for k in space.knobs if k.name not in held)
    fixed = {**space.fixed, **fixes}
    fixed_space = SearchSpace(space.name, fixed, space.environment, knobs, space.rules)
    for rule in fixed_space.broken({}):
        _refuse_broken(rule, fixed)
    return fixed_space


def _refuse_broken(rule: Rule, fixed: Mapping[str, Value]) -> None:
    sides = {
        n: fixed[n] for n in (rule.left, str(rule.right), *rule.when) if n in fixed
    }
    values = ", ".join(f"{n}={v}" for n, v in sides.items())
    relation = rule.relation.replace("_", " ")
    raise InputError(
        f"fixed settings contradict each other: {rule.left} must be {relation} "
        f"{rule.right}, got {values}; change one of them"
    )


def lossless(space: SearchSpace) -> SearchSpace:
    """The space without the knobs that can change what the model answers."""
    knobs = tuple(k for k in space.knobs if not k.affects_output)
    return SearchSpace(space.name, space.fixed, space.environment, knobs, space.rules)


def _scalar(pair: str, text: str) -> Value:
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"--fix {pair!r}: the value is not a YAML scalar") from error
    if not isinstance(value, str | int | float | bool | None):
        raise InputError(f"--fix {pair!r}: the value must be a scalar")
    return value


def _space_folder() -> Path:
    """The spaces' folder: inside the wheel, or at the top of a checkout."""
    packaged = Path(str(importlib.resources.files("autotune") / "search_spaces"))
    checkout = Path(__file__).parents[2] / "search_spaces"
    return packaged if packaged.is_dir() else checkout


def _space_path(name_or_path: str) -> Path:
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        path = Path(name_or_path)
        if not path.is_file():
            raise InputError(f"--space {name_or_path}: there is no such file")
        return path
    path = _space_folder() / f"{name_or_path}.yaml"
    if not path.is_file():
        names = ", ".join(space_names())
        raise InputError(
            f"--space {name_or_path}: no space of that name; there are: {names}. "
            "Or give a file ending in .yaml"
        )
    return path


def _read_yaml(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return yaml.load(text, Loader=_OneOfEachKey)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, TypeError, OSError) as error:
        raise InputError(f"{path} is not readable YAML: {error}") from error


def _validated(model: type[ModelT], data: object, path: Path) -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        value = str(first.get("input"))[:80]
        more = (
            f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        )
        raise InputError(f"{path}: {key}: {first['msg']}, got {value}{more}") from error
