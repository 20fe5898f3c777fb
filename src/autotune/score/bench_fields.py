"""A level in, its figures under the names ``vllm bench serve`` writes out. Pure.

They are that tool's formulae, so that files can be laid side by side: TTFT counts
from the actual send, all requests are pooled, throughput is over the whole time, and
gaps are those between chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.domain.timing import LevelResult, RequestTiming


PERCENTILES = (50, 95, 99)
Fields = dict[str, float | int | None]


def bench_fields(level: LevelResult) -> Fields:
    """Figures of a level's believable blocks; None where nothing was measured."""
    blocks = [b for b in level.blocks if b.void is None]
    timings = level.timings
    duration_s = sum(b.duration_s for b in blocks)
    prompt = sum(t.prompt_tokens for t in timings)
    output = sum(t.output_tokens for t in timings)
    fields: Fields = {
        "duration": duration_s,
        "completed": len(timings),
        "failed": sum(len(b.failures) for b in blocks),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": _rate(len(timings), duration_s),
        "output_throughput": _rate(output, duration_s),
        "total_token_throughput": _rate(prompt + output, duration_s),
    }
    samples_s = {
        "ttft": [t.ttft_from_send_s for t in timings],
        "tpot": [t.tpot_s for t in timings if t.tpot_s is not None],
        "itl": [gap for t in timings for gap in _chunk_gaps_s(t)],
        "e2el": [t.last_token_s - t.sent_s for t in timings],
    }
    for name, values_s in samples_s.items():
        fields |= _spread(name, values_s)
    return fields


def _spread(name: str, values_s: Sequence[float]) -> Fields:
    values_ms = np.asarray(values_s, dtype=float) * 1000.0
    known = bool(values_ms.size)
    fields: Fields = {
        f"mean_{name}_ms": float(np.mean(values_ms)) if known else None,
        f"median_{name}_ms": float(np.median(values_ms)) if known else None,
        f"std_{name}_ms": float(np.std(values_ms)) if known else None,
    }
    for rank in PERCENTILES:
        found = float(np.percentile(values_ms, rank)) if known else None
        fields[f"p{rank}_{name}_ms"] = found
    return fields


def _chunk_gaps_s(timing: RequestTiming) -> list[float]:
    """Gaps between chunks: tokens of one chunk share a stamp and have none."""
    return [gap for gap in timing.itl_s if gap > 0]


def _rate(count: int, duration_s: float) -> float | None:
    return count / duration_s if duration_s else None
