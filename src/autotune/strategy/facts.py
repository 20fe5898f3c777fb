"""What one launch taught the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.settings import Value


@dataclass(frozen=True, slots=True)
class Fact:
    """A configuration that was launched, and its worth.

    Attributes:
        values: What the engine really used, by knob name; may lack knobs, hold
            further names, and lie outside the knobs' ranges.
        score: Lower is better; ignored where a constraint is violated.
        constraints: Violations by name; positive means infeasible.
    """

    values: Mapping[str, Value]
    score: float
    constraints: Mapping[str, float]

    @property
    def violation(self) -> float:
        """The largest constraint value; 0 where there is none."""
        return max(self.constraints.values(), default=0.0)
