"""A search space and a catalog in; what of it exists here, and what not, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.domain.layout import LAYOUT
from autotune.domain.settings import Value
from autotune.domain.space import (
    ChoiceKnob,
    FloatKnob,
    IntKnob,
    Knob,
    Rule,
    SearchSpace,
)
from autotune.engine.catalog import Argument, Catalog
from autotune.engine.catalog.dependencies import Dependencies, Limit


_LAYOUT_ARGUMENTS = ("tensor_parallel_size", "pipeline_parallel_size")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something of the space that this vLLM or device does not take.

    Attributes:
        name: The knob, or the fixed setting.
        values: The choices that were dropped; empty when all of it was.
        reason: Why.
    """

    name: str
    reason: str
    values: tuple[Value, ...] = ()

    def __str__(self) -> str:
        what = ", ".join(map(str, self.values))
        return f"{self.name}{f' ({what})' if what else ''}: {self.reason}"


def intersect(
    space: SearchSpace, catalog: Catalog, *, dependencies: Dependencies | None = None
) -> tuple[SearchSpace, tuple[Skipped, ...]]:
    """The part of ``space`` that exists in ``catalog``, with vLLM's own rules added.

    A knob that does not exist, has no effect, or is left with a single value is
    dropped; ranges are cut to the declared bounds; choices that the type or the
    device refuses are dropped one by one. A fixed setting that is unknown or
    refused is dropped too: check what a user typed with ``check_values`` instead.
    """
    tables = dependencies or Dependencies()
    skipped: list[Skipped] = []
    fixed = _fixed(space.fixed, catalog, skipped)
    knobs = [
        kept
        for knob in space.knobs
        if (kept := _knob(knob, catalog, fixed, tables, skipped)) is not None
    ]
    rules = _rules(space.rules, tables.rules, knobs, fixed, catalog)
    kept_space = SearchSpace(space.name, fixed, space.environment, tuple(knobs), rules)
    return kept_space, tuple(skipped)


def _fixed(
    fixed: Mapping[str, Value], catalog: Catalog, skipped: list[Skipped]
) -> dict[str, Value]:
    kept: dict[str, Value] = {}
    for name, value in fixed.items():
        refusal = None if name == LAYOUT else catalog.refusal(name, value)
        if refusal is None:
            kept[name] = value
        else:
            skipped.append(Skipped(name, refusal))
    return kept


def _knob(
    knob: Knob,
    catalog: Catalog,
    fixed: Mapping[str, Value],
    tables: Dependencies,
    skipped: list[Skipped],
) -> Knob | None:
    """The knob as far as it exists; None, and a reason, where it does not."""
    if knob.name == LAYOUT:
        return _layout(knob, catalog, skipped)
    limit = tables.limit(catalog.device, knob.name)
    reason = _absence(knob.name, catalog, limit) or _override(knob.name, fixed, tables)
    if reason is not None:
        skipped.append(Skipped(knob.name, reason))
        return None
    argument = catalog.arguments[knob.name]
    if isinstance(knob, ChoiceKnob):
        return _choices(knob, argument, limit, skipped)
    return _range(knob, argument, limit, skipped)


def _layout(knob: Knob, catalog: Catalog, skipped: list[Skipped]) -> Knob | None:
    missing = [name for name in _LAYOUT_ARGUMENTS if name not in catalog]
    if not missing:
        return knob
    skipped.append(Skipped(LAYOUT, catalog.unknown(missing[0])))
    return None


def _absence(name: str, catalog: Catalog, limit: Limit | None) -> str | None:
    if name not in catalog:
        return catalog.unknown(name)
    return None if limit is None or limit.works else limit.reason


def _override(
    name: str, fixed: Mapping[str, Value], tables: Dependencies
) -> str | None:
    """Why a fixed setting takes the effect away from ``name``, if one does."""
    for row in tables.overrides:
        value = fixed.get(row.by)
        if row.name == name and value is not None and row.value in (None, value):
            return row.reason
    return None


def _choices(
    knob: ChoiceKnob,
    argument: Argument,
    limit: Limit | None,
    skipped: list[Skipped],
) -> Knob | None:
    kept: list[Value] = []
    for choice in knob.choices:
        reason = argument.refusal(choice) or _off_grid(choice, limit)
        if reason is None:
            kept.append(choice)
        else:
            skipped.append(Skipped(knob.name, reason, (choice,)))
    if len(kept) > 1:
        return replace(knob, choices=tuple(kept))
    left = f"only {kept[0]!r} is left" if kept else "no choice is left"
    skipped.append(Skipped(knob.name, f"{left}: nothing to turn"))
    return None


def _off_grid(value: Value, limit: Limit | None) -> str | None:
    step = limit.multiple_of if limit else None
    if limit is None or step is None or not isinstance(value, int) or not value % step:
        return None
    return limit.reason


def _range(
    knob: IntKnob | FloatKnob,
    argument: Argument,
    limit: Limit | None,
    skipped: list[Skipped],
) -> Knob | None:
    if limit is not None and limit.multiple_of is not None:
        reason = f"{limit.reason}; write it as choices"
        skipped.append(Skipped(knob.name, reason))
        return None
    cut = _cut(knob, argument)
    reason_low, reason_high = argument.refusal(cut.low), argument.refusal(cut.high)
    if cut.low >= cut.high or reason_low or reason_high:
        reason = reason_low or reason_high or "no range is left inside the bounds"
        skipped.append(Skipped(knob.name, reason))
        return None
    if cut != knob:
        bounds = f"cut to {cut.low:g} … {cut.high:g}, vLLM's own bounds"
        skipped.append(Skipped(knob.name, bounds, (knob.low, knob.high)))
    return cut


def _cut(knob: IntKnob | FloatKnob, argument: Argument) -> IntKnob | FloatKnob:
    """The range inside the bounds; a whole step further in where one is excluded."""
    low, high, step = knob.low, knob.high, knob.step or 0
    if argument.low is not None and _below(low, argument):
        low = _steps_up(knob, argument.low, excluded=argument.low_excluded)
    if argument.high is not None and _above(high, argument):
        high = argument.high - (step if argument.high_excluded else 0)
    if isinstance(knob, IntKnob):
        whole = int(low) + (int(high) - int(low)) // knob.step * knob.step
        return replace(knob, low=int(low), high=whole)
    return replace(knob, low=float(low), high=float(high))


def _below(low: float, argument: Argument) -> bool:
    bound = argument.low if argument.low is not None else low
    return low <= bound if argument.low_excluded else low < bound


def _above(high: float, argument: Argument) -> bool:
    bound = argument.high if argument.high is not None else high
    return high >= bound if argument.high_excluded else high > bound


def _steps_up(knob: IntKnob | FloatKnob, bound: float, *, excluded: bool) -> float:
    """The first value of the knob's grid at ``bound``, or beyond it if excluded."""
    if knob.step is None:
        return bound
    value: float = knob.low
    while value < bound or (excluded and value == bound):
        value += knob.step
    return value


def _rules(
    own: tuple[Rule, ...],
    known: tuple[Rule, ...],
    knobs: list[Knob],
    fixed: Mapping[str, Value],
    catalog: Catalog,
) -> tuple[Rule, ...]:
    """The space's rules, then vLLM's, each once, where they can still be broken.

    A side that is neither turned nor fixed stands at its default, so the rule is
    written with that number.
    """
    turned = {knob.name for knob in knobs}
    merged = dict.fromkeys(_identity(rule) for rule in (*own, *known))
    by_identity = {_identity(rule): rule for rule in (*known, *own)}
    rules = [by_identity[identity] for identity in merged]
    return tuple(
        _with_default(rule, turned, fixed, catalog)
        for rule in rules
        if rule.left in turned
    )


def _identity(rule: Rule) -> tuple[object, ...]:
    return rule.left, rule.relation, rule.right, tuple(sorted(rule.when.items()))


def _with_default(
    rule: Rule, turned: set[str], fixed: Mapping[str, Value], catalog: Catalog
) -> Rule:
    right = rule.right
    if not isinstance(right, str) or right in turned or right in fixed:
        return rule
    default = catalog.default(right)
    number = isinstance(default, int | float) and not isinstance(default, bool)
    return replace(rule, right=default) if number else rule  # type: ignore[arg-type]
