"""What became of a launch; states are types, so nothing half-true can be said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.domain.timing import LevelResult


Blame = Literal["settings", "environment", "request", "nobody"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a launch failed, in the engine's own words.

    Attributes:
        failure_class: One of the classes of ``engine.failures``.
        blames: Whose fault it is; decides penalty, retry or abort.
        line: The decisive line.
        advice: What to change.
        log_path: Where the whole log lies, if it was kept.
        exception: What the parent process was told.
        asked_bytes: Memory that was asked for, if stated.
        free_bytes: Memory that was there, if stated.
    """

    failure_class: str
    blames: Blame
    line: str
    advice: str = ""
    log_path: str | None = None
    exception: str | None = None
    asked_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The engine served every level to its end."""

    levels: tuple[LevelResult, ...]


@dataclass(frozen=True, slots=True)
class Saturated:
    """The offered rate was more than the engine sustains: no steady state exists."""

    sustained_rps: float
    levels: tuple[LevelResult, ...] = ()


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Memory did not suffice; ``shortfall_bytes`` where the engine said by how much."""

    phase: str
    evidence: Evidence
    shortfall_bytes: int | None = None
    needed_bytes: int | None = None
    levels: tuple[LevelResult, ...] = ()
    predicted_fraction: float = 0.0

    @property
    def shortfall_fraction(self) -> float:
        """Missing memory over needed memory: as the engine said, else as predicted."""
        if not self.shortfall_bytes or not self.needed_bytes:
            return self.predicted_fraction
        return self.shortfall_bytes / self.needed_bytes


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The settings cannot run here for a reason other than memory."""

    evidence: Evidence
    levels: tuple[LevelResult, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvironmentFault:
    """Something outside the settings went wrong; says nothing about them."""

    evidence: Evidence
    levels: tuple[LevelResult, ...] = ()


Outcome = Measured | Saturated | OutOfMemory | Infeasible | EnvironmentFault
