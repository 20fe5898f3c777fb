"""An outcome in; its own score and metrics, or why it has none, out. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autotune.domain.outcome import Measured, Outcome, Saturated
from autotune.domain.timing import LevelResult
from autotune.score.summary import Summary, summarize


METRICS: dict[str, Callable[[Summary], float]] = {
    "p50 TTFT": lambda s: s.ttft_p50_ms,
    "p95 TTFT": lambda s: s.ttft_p95_ms,
    "TPOT": lambda s: s.tpot_mean_ms,
    "throughput": lambda s: s.output_tokens_per_s,
}


def own_score(levels: Sequence[LevelResult]) -> float:
    """The geometric mean over levels of sqrt(p95 TTFT x mean TPOT), in ms.

    The ratio of two of these is the study's score of the one against the other.
    TTFT stands alone where TPOT says nothing: for one-token outputs.

    Raises:
        ValueError: A level has no block that may be believed.
    """
    return _mean([_latency_ms(s) for s in _summaries(levels)])


def own_metrics(levels: Sequence[LevelResult]) -> dict[str, float]:
    """Geometric means over levels, in ms and tokens per second, where known."""
    summaries = _summaries(levels)
    values = {n: [of(s) for s in summaries] for n, of in METRICS.items()}
    return {n: _mean(v) for n, v in values.items() if all(x > 0 for x in v)}


def failure_of(outcome: Outcome) -> str | None:
    """Why ``outcome`` cannot be scored; None when it can."""
    match outcome:
        case Measured(levels):
            failed = [f for r in levels for b in r.blocks for f in b.failures]
            if failed:
                return f"{len(failed)} requests failed: {failed[0].reason}"
            if any(summarize(level) is None for level in levels) or not levels:
                return "no block can be believed"
            return None
        case Saturated(rate):
            return f"does not sustain the load, only {rate:g} requests per second"
        case _:
            return f"{outcome.evidence.failure_class}: {outcome.evidence.line}"


def _latency_ms(summary: Summary) -> float:
    if not summary.tpot_mean_ms > 0:
        return summary.ttft_p95_ms
    return math.sqrt(summary.ttft_p95_ms * summary.tpot_mean_ms)


def _summaries(levels: Sequence[LevelResult]) -> list[Summary]:
    found = [summarize(level) for level in levels]
    known = [s for s in found if s is not None]
    if not known or len(known) < len(found):
        raise ValueError("a level has no block that may be believed")
    return known


def _mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
