"""A level's timings in, the figures people compare out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.domain.timing import Block, LevelResult


@dataclass(frozen=True, slots=True)
class Summary:
    """What one level came to.

    The block is the statistical unit: every figure is the median over the level's
    believable blocks of that block's figure, so that one disturbed block moves
    nothing. Latencies are milliseconds. Within a block, percentiles are of requests
    (linear interpolation), ``tpot_mean_ms`` is the mean over requests, and ITL is of
    single gaps between tokens; NaN where outputs had one token.
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
    blocks = [_of_block(b) for b in level.blocks if b.void is None and b.timings]
    if not blocks:
        return None
    medians = {n: _median([b[n] for b in blocks]) for n in blocks[0]}
    return Summary(
        requests=len(level.timings),
        failed=sum(len(b.failures) for b in level.blocks if b.void is None),
        **medians,
    )


def _of_block(block: Block) -> dict[str, float]:
    ttft = _ms([t.ttft_s for t in block.timings])
    tpot = _ms([t.tpot_s for t in block.timings if t.tpot_s is not None])
    itl = _ms([gap for t in block.timings for gap in t.itl_s])
    tokens = sum(t.output_tokens for t in block.timings)
    return {
        "ttft_p50_ms": _percentile(ttft, 50),
        "ttft_p95_ms": _percentile(ttft, 95),
        "ttft_p99_ms": _percentile(ttft, 99),
        "tpot_mean_ms": float(np.mean(tpot)) if tpot.size else float("nan"),
        "tpot_p50_ms": _percentile(tpot, 50),
        "tpot_p95_ms": _percentile(tpot, 95),
        "itl_p99_ms": _percentile(itl, 99),
        "output_tokens_per_s": tokens / block.duration_s,
        "requests_per_s": len(block.timings) / block.duration_s,
    }


def _median(values: Sequence[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return float(np.median(known)) if known else math.nan


def _ms(seconds: Sequence[float]) -> np.ndarray:
    return np.asarray(seconds, dtype=float) * 1000.0


def _percentile(values: np.ndarray, q: float) -> float:
    return float(np.percentile(values, q)) if values.size else float("nan")
