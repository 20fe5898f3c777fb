"""What one vLLM accepts, as plain frozen values: JSON in, JSON out."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from autotune.domain.settings import Value


# What a value of an argument may be; "other" takes values we do not write
# (lists, mappings, classes), "any" is a type that could not be read.
KINDS = ("none", "bool", "int", "float", "str", "enum", "config", "other", "any")


@dataclass(frozen=True, slots=True)
class Argument:
    """One engine argument; a dotted name is a field of a nested configuration.

    Attributes:
        name: Field name of ``EngineArgs``, dotted when nested.
        kinds: What a value may be; some of ``KINDS``.
        literals: The words and numbers its type lists; with ``str`` among the
            kinds they are suggestions, otherwise nothing else is accepted.
        default: What ``vllm serve`` takes when it is absent; None also where
            vLLM decides at the start, or where the default is no plain value.
        low: Smallest number accepted, if one is declared.
        high: Largest number accepted, if one is declared.
        low_excluded: ``low`` itself is refused.
        high_excluded: ``high`` itself is refused.
    """

    name: str
    kinds: frozenset[str]
    literals: tuple[Value, ...] = ()
    default: Value = None
    low: float | None = None
    high: float | None = None
    low_excluded: bool = False
    high_excluded: bool = False

    def refusal(self, value: Value) -> str | None:
        """Why ``value`` is not accepted; None when its type says it is."""
        if "any" in self.kinds or value in self._typed_literals(value):
            return None
        if value is None:
            absent = "none" in self.kinds or self.default is None
            return None if absent else "it cannot be left empty"
        if isinstance(value, bool):
            return None if "bool" in self.kinds else self._not_accepted(value)
        if isinstance(value, int | float):
            return self._number_refusal(value)
        if "str" in self.kinds or self._names_member(value):
            return None
        return self._not_accepted(value)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON without the fields that say nothing."""
        data: dict[str, Any] = {"kinds": sorted(self.kinds), "default": self.default}
        optional = {
            "literals": list(self.literals) or None,
            "low": self.low,
            "high": self.high,
            "low_excluded": self.low_excluded or None,
            "high_excluded": self.high_excluded or None,
        }
        return data | {k: v for k, v in optional.items() if v is not None}

    def _typed_literals(self, value: Value) -> tuple[Value, ...]:
        return tuple(v for v in self.literals if type(v) is type(value))

    def _number_refusal(self, value: float) -> str | None:
        whole = "int" in self.kinds and isinstance(value, int)
        if not whole and "float" not in self.kinds:
            return self._not_accepted(value)
        if self.low is not None and value <= self.low:
            if self.low_excluded:
                return f"{value:g} is not above {self.low:g}"
            if value < self.low:
                return f"{value:g} is not at least {self.low:g}"
        if self.high is not None and value >= self.high:
            if self.high_excluded:
                return f"{value:g} is not below {self.high:g}"
            if value > self.high:
                return f"{value:g} is not at most {self.high:g}"
        return None

    def _names_member(self, value: str) -> bool:
        """An enumeration takes its members' names in any case, as vLLM does."""
        return "enum" in self.kinds and value.upper() in self.literals

    def _not_accepted(self, value: Value) -> str:
        words = [str(v) for v in self.literals]
        if words:
            near = difflib.get_close_matches(str(value), words, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"{value!r} is not one of {', '.join(words)}{hint}"
        wanted = " or ".join(sorted(self.kinds - {"none"})) or "nothing"
        return f"{value!r} is not {wanted}"


@dataclass(frozen=True)
class Catalog:
    """Every argument of one vLLM on one kind of device, as its server takes them.

    Attributes:
        version: vLLM's own.
        device: ``cpu``, or the accelerator's product name.
        arguments: By name, in order of names.
    """

    version: str
    device: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze and order the arguments, so that equal catalogs hash alike."""
        frozen = MappingProxyType(dict(sorted(self.arguments.items())))
        object.__setattr__(self, "arguments", frozen)

    def __hash__(self) -> int:
        return hash(self.key)

    def __iter__(self) -> Iterator[Argument]:
        return iter(self.arguments.values())

    def __contains__(self, name: str) -> bool:
        return name in self.arguments

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits: equal for equal catalogs, in every process."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def default(self, name: str) -> Value:
        """The server's default; None where unknown, or decided at the start."""
        argument = self.arguments.get(name)
        return argument.default if argument else None

    def refusal(self, name: str, value: Value) -> str | None:
        """Why this vLLM does not take ``name=value``; None when it does."""
        argument = self.arguments.get(name)
        return argument.refusal(value) if argument else self.unknown(name)

    def unknown(self, name: str) -> str:
        """That ``name`` does not exist, and what is close."""
        near = self.nearest(name)
        hint = f"; did you mean {near}?" if near else ""
        return f"vLLM {self.version} has no engine argument {name!r}{hint}"

    def nearest(self, name: str) -> str | None:
        """The argument spelt most like ``name``, at its own depth first."""
        level = [n for n in self.arguments if n.count(".") == name.count(".")]
        for pool in (level, list(self.arguments)):
            found = difflib.get_close_matches(name, pool, n=1)
            if found:
                return found[0]
        return None

    def with_defaults(self, effective: Mapping[str, Value]) -> Catalog:
        """The same catalog with the defaults that a resolved launch has shown."""
        known = {k: v for k, v in effective.items() if k in self.arguments}
        changed = {k: replace(self.arguments[k], default=v) for k, v in known.items()}
        return Catalog(self.version, self.device, {**self.arguments, **changed})

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that ``from_json`` reads back to an equal value."""
        return {
            "version": self.version,
            "device": self.device,
            "arguments": {name: a.to_json() for name, a in self.arguments.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Catalog:
        """A catalog from what ``to_json`` wrote.

        Raises:
            KeyError, TypeError: It is not what ``to_json`` writes.
        """
        arguments = {
            name: Argument(
                name,
                **{
                    **facts,
                    "kinds": frozenset(facts["kinds"]),
                    "literals": tuple(facts.get("literals", ())),
                },
            )
            for name, facts in data["arguments"].items()
        }
        return Catalog(str(data["version"]), str(data["device"]), arguments)
