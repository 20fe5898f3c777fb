"""What a type hint accepts, in the shapes vLLM writes them."""

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autotune.engine.catalog.hints import accepted, hints_of


if TYPE_CHECKING:
    from elsewhere import Missing  # type: ignore[import-not-found]


class Mode(enum.Enum):
    NONE = 0
    FULL = 1
    BOTH = (1, 2)


@dataclass
class Nested:
    size: int = 0


@dataclass
class Owner:
    plain: "int | None" = None
    lost: "Missing | None" = None


@dataclass
class Heir(Owner):
    more: 'Literal["a", 2]' = "a"


def test_a_union_takes_what_its_parts_take():
    takes = accepted(Literal["auto", "fp8"] | int | None)

    assert takes.kinds == {"int", "none"}
    assert takes.literals == ("auto", "fp8")


def test_a_literal_none_is_an_absent_value():
    takes = accepted(Literal["auto", None])  # noqa: PYI061 - vLLM writes it so

    assert takes.kinds == {"none"}
    assert takes.literals == ("auto",)


def test_an_enumeration_lists_names_and_whole_numbers():
    takes = accepted(Mode)

    assert takes.kinds == {"enum"}
    assert takes.literals == ("NONE", "FULL", "BOTH", 0, 1)


def test_annotations_around_a_type_are_looked_through():
    assert accepted(Annotated[float, "a bound"]).kinds == {"float"}


def test_a_configuration_class_is_remembered_for_its_fields():
    assert accepted(Nested | None).nested is Nested


def test_lists_and_mappings_are_other():
    assert accepted(list[int]).kinds == {"other"}
    assert accepted(dict[str, Any] | None).kinds == {"other", "none"}


def test_a_name_imported_for_type_checkers_costs_only_its_own_field():
    hints = hints_of(Heir)

    assert hints["plain"] == int | None
    assert hints["lost"] is Any
    assert hints["more"] == Literal["a", 2]
