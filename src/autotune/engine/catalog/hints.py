"""A type hint of vLLM's in, the kinds and literals it accepts out."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from dataclasses import dataclass
from typing import Any

from autotune.domain.settings import Value


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a type accepts.

    Attributes:
        kinds: See ``catalog.KINDS``.
        literals: Words and numbers listed by literals and enumerations.
        nested: A configuration class whose fields have dotted names.
    """

    kinds: frozenset[str]
    literals: tuple[Value, ...] = ()
    nested: type | None = None


_PLAIN = {type(None): "none", bool: "bool", int: "int", float: "float", str: "str"}


def hints_of(owner: type) -> dict[str, Any]:
    """The evaluated hints of a class and its bases; ``Any`` where one fails.

    One by one, because vLLM imports some of its types for type checkers only, and
    a single name that is missing at run time would cost all the others.
    """
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        for name, annotation in vars(base).get("__annotations__", {}).items():
            found[name] = _evaluated(base, name, annotation)
    return found


def accepted(hint: Any) -> Accepted:
    """What values of type ``hint`` may be."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return Accepted(frozenset({"any"}))
    if origin is typing.Annotated:
        return accepted(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return _union([accepted(part) for part in typing.get_args(hint)])
    if origin is typing.Literal:
        values = typing.get_args(hint)
        kinds = frozenset({"none"} if None in values else set())
        return Accepted(kinds, tuple(v for v in values if v is not None))
    if hint in _PLAIN:
        return Accepted(frozenset({_PLAIN[hint]}))
    return _class(hint)


def _evaluated(owner: type, name: str, annotation: Any) -> Any:
    holder = type(
        owner.__name__,
        (),
        {"__annotations__": {name: annotation}, "__module__": owner.__module__},
    )
    try:
        return typing.get_type_hints(holder)[name]
    except (NameError, TypeError, AttributeError):
        return Any


def _union(parts: list[Accepted]) -> Accepted:
    literals = dict.fromkeys(value for part in parts for value in part.literals)
    nested = next((part.nested for part in parts if part.nested), None)
    kinds = frozenset().union(*(part.kinds for part in parts))
    return Accepted(kinds, tuple(literals), nested)


def _class(hint: Any) -> Accepted:
    if not isinstance(hint, type):
        return Accepted(frozenset({"other"}))
    if issubclass(hint, enum.Enum):
        names = tuple(hint.__members__)
        numbers = tuple(m.value for m in hint if isinstance(m.value, int))
        return Accepted(frozenset({"enum"}), (*names, *numbers))
    if dataclasses.is_dataclass(hint):
        return Accepted(frozenset({"config"}), nested=hint)
    return Accepted(frozenset({"other"}))
