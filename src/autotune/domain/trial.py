"""A launch with everything known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from autotune.domain.outcome import Outcome
from autotune.domain.settings import EngineSettings, Value


Role = Literal["baseline", "trial"]


@dataclass(frozen=True, slots=True)
class Score:
    """A trial's worth: lower is better, 1.0 is the baseline of the same epoch.

    Attributes:
        value: What Optuna is told.
        constraints: Violations by name; positive means infeasible.
    """

    value: float
    constraints: Mapping[str, float]

    @property
    def feasible(self) -> bool:
        """Whether no constraint is violated."""
        return all(v <= 0 for v in self.constraints.values())


@dataclass(frozen=True, slots=True)
class Trial:
    """One launch.

    Attributes:
        number: Optuna's trial number; None for an epoch's repeated baseline.
        role: Whether it is a proposal or the baseline.
        settings: What was asked for.
        effective: What the engine really used, by name.
        outcome: What became of it.
        score: Judgement, once there is a reference in the epoch.
        phases_s: Seconds by phase (resolve, start, warm-up, measure, stop …).
        started_at: Wall clock.
        epoch: Which run on which machine; ratios stay inside one epoch.
    """

    number: int | None
    role: Role
    settings: EngineSettings
    effective: Mapping[str, Value]
    outcome: Outcome
    score: Score | None
    phases_s: Mapping[str, float]
    started_at: datetime
    epoch: int
    changes: Mapping[str, Value] = field(default_factory=dict)
