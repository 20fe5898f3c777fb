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
    most 100; 100 and infeasible when requests failed. Without a reference the outcome
    is its own. Infeasible outcomes get 1000 x (1 + the missing share of memory, at
    most 9), which no measurement reaches. None where nothing can be said of the
    settings: a fault of the environment, or blocks that are all void.
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
    failed = _failed_share(levels)
    if failed:
        return Score(CAP, FEASIBLE | {"failed_requests": failed})
    pairs = [(summarize(a), summarize(b)) for a, b in _matched(levels, reference)]
    ratios = [_ratio(a, b) for a, b in pairs if a is not None and b is not None]
    if not ratios or len(ratios) < len(reference):
        return None
    value = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
    return Score(min(value, CAP), dict(FEASIBLE))


def _failed_share(levels: Sequence[LevelResult]) -> float:
    """Failed requests over sent ones, in blocks that may be believed."""
    blocks = [b for level in levels for b in level.blocks if b.void is None]
    failed = sum(len(b.failures) for b in blocks)
    sent = failed + sum(len(b.timings) for b in blocks)
    return failed / sent if sent else 0.0


def _matched(
    levels: Sequence[LevelResult], reference: Sequence[LevelResult]
) -> list[tuple[LevelResult, LevelResult]]:
    by_key = {(r.workload, r.level): r for r in levels}
    keys = [(r.workload, r.level) for r in reference]
    return [(by_key[k], r) for k, r in zip(keys, reference, strict=True) if k in by_key]


def _ratio(trial: Summary, reference: Summary) -> float:
    """Sqrt(p95 TTFT ratio x mean TPOT ratio); TTFT alone where TPOT says nothing.

    TPOT says nothing of one-token outputs, nor of tokens that all came at once.
    """
    ttft = trial.ttft_p95_ms / reference.ttft_p95_ms
    if not (trial.tpot_mean_ms > 0 and reference.tpot_mean_ms > 0):
        return ttft
    return math.sqrt(ttft * trial.tpot_mean_ms / reference.tpot_mean_ms)
