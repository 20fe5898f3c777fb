"""The seam to NVIDIA's management library: a question in, a plain answer out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class At:
    """A device as an argument of a question.

    Attributes:
        index: Its number in the management library's order (by PCI address).
        part: A MIG instance of it, by number; None for the whole device.
    """

    index: int
    part: int | None = None

    def __str__(self) -> str:
        return f"#{self.index}" if self.part is None else f"#{self.index}.{self.part}"


@dataclass(frozen=True, slots=True)
class Refused:
    """The library's answer when it has none.

    Attributes:
        code: Its return code.
        text: What it says about it.
    """

    code: int
    text: str


# Numbers, text, lists of these and mappings by field name: what JSON can hold.
Answer = object
Argument = At | int

UNINITIALIZED = 1
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
DEVICE_LOST = 15
VERSION_MISMATCH = 18


class Nvml(Protocol):
    """Whoever answers: the driver, or a recorded reading."""

    def ask(self, function: str, *arguments: Argument) -> Answer | Refused:
        """What the library's ``function`` returns, as plain values; never raises."""
        ...


def question(function: str, arguments: tuple[Argument, ...]) -> str:
    """How a question is written down: ``nvmlDeviceGetName #0``."""
    return " ".join([function, *map(str, arguments)])


def number(answer: Answer | Refused) -> int | None:
    """A whole number, or None where there is no such answer."""
    return answer if isinstance(answer, int) else None


def text(answer: Answer | Refused) -> str | None:
    """A text, or None where there is no such answer."""
    return answer if isinstance(answer, str) else None


def fields(answer: Answer | Refused) -> dict[str, object]:
    """A structure by field name; empty where there is no such answer."""
    return answer if isinstance(answer, dict) else {}


def items(answer: Answer | Refused) -> list[object]:
    """A list; empty where there is no such answer."""
    return answer if isinstance(answer, list) else []
