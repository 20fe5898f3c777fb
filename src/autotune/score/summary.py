"""A level's timings in, the figures people compare out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.domain.timing import LevelResult, RequestTiming


@dataclass(frozen=True, slots=True)
class Summary:
    """What one level, or several pooled, came to.

    Latencies are milliseconds. Percentiles are of requests, pooled over blocks
    (linear interpolation); ``tpot_mean_ms`` is the mean over requests; ITL is of
    single gaps between tokens.
    """

    requests: int
    failed: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_p99_ms: float
    tpot_mean_ms: float
    tpot_p50_ms: float
    tpot_p95_ms: float
    itl_p99_ms: float
    output_tokens_per_s: float
    requests_per_s: float


def summarize(level: LevelResult) -> Summary | None:
    """Figures of a level; None when no believable block answered anything."""
    believable = [b for b in level.blocks if b.void is None]
    timings = level.timings
    if not timings:
        return None
    ttft = _ms([t.ttft_s for t in timings])
    tpot = _ms([t.tpot_s for t in timings if t.tpot_s is not None])
    itl = _ms([gap for t in timings for gap in t.itl_s])
    seconds = sum(b.duration_s for b in believable)
    return Summary(
        requests=len(timings),
        failed=sum(len(b.failures) for b in believable),
        ttft_p50_ms=_percentile(ttft, 50),
        ttft_p95_ms=_percentile(ttft, 95),
        ttft_p99_ms=_percentile(ttft, 99),
        tpot_mean_ms=float(np.mean(tpot)) if tpot.size else float("nan"),
        tpot_p50_ms=_percentile(tpot, 50),
        tpot_p95_ms=_percentile(tpot, 95),
        itl_p99_ms=_percentile(itl, 99),
        output_tokens_per_s=_output_tokens(timings) / seconds,
        requests_per_s=len(timings) / seconds,
    )


def _ms(seconds: Sequence[float]) -> np.ndarray:
    return np.asarray(seconds, dtype=float) * 1000.0


def _percentile(values: np.ndarray, q: float) -> float:
    return float(np.percentile(values, q)) if values.size else float("nan")


def _output_tokens(timings: Sequence[RequestTiming]) -> int:
    return sum(t.output_tokens for t in timings)
