"""What may be said of the finalists once they met the defaults again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Effect:
    """One measure of a candidate as a multiple of the baseline's.

    Attributes:
        ratio: Candidate over baseline; 0.95 is 5 % less.
        low: Lower end of the interval.
        high: Upper end of the interval.
        confidence: Share of such intervals that hold the true ratio.
    """

    ratio: float
    low: float
    high: float
    confidence: float

    @property
    def percent(self) -> tuple[float, float, float]:
        """Change in per cent: estimate, lower end, upper end."""
        return (
            100 * (self.ratio - 1),
            100 * (self.low - 1),
            100 * (self.high - 1),
        )

    @property
    def is_tie(self) -> bool:
        """Whether "no change" lies inside the interval."""
        return self.low <= 1 <= self.high

    @property
    def gain_fraction(self) -> float:
        """By how much the measure fell: 0.05 for a ratio of 0.95."""
        return 1 - self.ratio


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """One finalist after its last look.

    Attributes:
        name: Its key in the rounds.
        changes_count: Settings in which it differs from the baseline.
        rounds_count: Rounds its effect is made of.
        effect: Of the study's score; lower is better.
        is_win: Beat the baseline by the sequential test over all candidates.
        best_gain_fraction: The largest gain the sequential test leaves possible.
        metrics: Descriptive effects by name (``p95 TTFT``); nothing was tested.
    """

    name: str
    changes_count: int
    rounds_count: int
    effect: Effect
    is_win: bool
    best_gain_fraction: float
    metrics: Mapping[str, Effect] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a verdict rests on.

    Attributes:
        candidates: Every finalist, lowest score first.
        rounds_count: Rounds run in all.
        noise_fraction: Run-to-run coefficient of variation of one score, drift
            that a round shares taken out; not a number when no candidate met the
            baseline twice.
        worth_fraction: The smallest gain worth a change.
    """

    candidates: tuple[CandidateResult, ...]
    rounds_count: int
    noise_fraction: float
    worth_fraction: float

    @property
    def noise_is_known(self) -> bool:
        """Whether at least two pairs were seen."""
        return math.isfinite(self.noise_fraction)


@dataclass(frozen=True, slots=True)
class WorthIt:
    """``winner`` beats the baseline by enough to change."""

    winner: CandidateResult
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class NotWorthIt:
    """``winner`` beats the baseline, but by too little to change."""

    winner: CandidateResult
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class NoneBeat:
    """No candidate won, and a gain of ``excluded_fraction`` or more is excluded."""

    comparison: Comparison
    excluded_fraction: float


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """The rounds are spent; neither a win nor the absence of a gain was shown."""

    comparison: Comparison


Verdict = WorthIt | NotWorthIt | NoneBeat | Inconclusive


@dataclass(frozen=True, slots=True)
class Continue:
    """No verdict yet.

    Attributes:
        next_look: Number of complete rounds at which to decide again.
        candidates: Finalists still worth running; the others may be left out of
            the rounds to come.
    """

    next_look: int
    candidates: tuple[str, ...]
