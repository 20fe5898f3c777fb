"""An outcome and a reference in, a score out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.domain.outcome import (
    EnvironmentFault,
    Infeasible,
    Measured,
    Outcome,
    OutOfMemory,
    Saturated,
)
from autotune.domain.timing import LevelResult
from autotune.domain.trial import Score
from autotune.score.summary import Summary, summarize


CAP = 100.0
PENALTY = 1000.0
MOST_SHORTFALL = 9.0
# Every told trial sets every key: Optuna's Gaussian-process sampler insists.
FEASIBLE = {"memory": 0.0, "settings": 0.0, "failed_requests": 0.0}


def score(outcome: Outcome, reference: Sequence[LevelResult] | None) -> Score | None:
    """How good ``outcome`` is against ``reference``; 1.0 is the reference itself.

    The geometric mean over levels of sqrt(p95 TTFT ratio x mean TPOT ratio), at
    most 100. Without a reference the outcome is its own. Infeasible outcomes get
    1000 x (1 + the missing share of memory, at most 9), which no measurement
    reaches. None where nothing can be said of the settings: a fault of the
    environment, or blocks that are all void.
    """
    match outcome:
        case Measured(levels):
            return _measured(levels, reference or levels)
        case Saturated():
            return Score(CAP, dict(FEASIBLE))
        case OutOfMemory():
            missing = min(outcome.shortfall_fraction, MOST_SHORTFALL)
            violation = {"memory": max(missing, 0.01)}
            return Score(PENALTY * (1 + missing), FEASIBLE | violation)
        case Infeasible():
            return Score(PENALTY, FEASIBLE | {"settings": 1.0})
        case EnvironmentFault():
            return None


def _measured(
    levels: Sequence[LevelResult], reference: Sequence[LevelResult]
) -> Score | None:
    pairs = [(summarize(a), summarize(b)) for a, b in _matched(levels, reference)]
    ratios = [_ratio(a, b) for a, b in pairs if a is not None and b is not None]
    if len(ratios) < len(reference):
        return None
    value = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
    sent = sum(a.requests + a.failed for a, _ in pairs if a is not None)
    failed = sum(a.failed for a, _ in pairs if a is not None) / sent
    capped = min(value, CAP) if not failed else CAP
    return Score(capped, FEASIBLE | {"failed_requests": failed})


def _matched(
    levels: Sequence[LevelResult], reference: Sequence[LevelResult]
) -> list[tuple[LevelResult, LevelResult]]:
    by_key = {(r.workload, r.level): r for r in levels}
    keys = [(r.workload, r.level) for r in reference]
    return [(by_key[k], r) for k, r in zip(keys, reference, strict=True) if k in by_key]


def _ratio(trial: Summary, reference: Summary) -> float:
    """Sqrt(p95 TTFT ratio x mean TPOT ratio); TTFT alone for one-token outputs."""
    ttft = trial.ttft_p95_ms / reference.ttft_p95_ms
    tpot = trial.tpot_mean_ms / reference.tpot_mean_ms
    return ttft if math.isnan(tpot) else math.sqrt(ttft * tpot)
