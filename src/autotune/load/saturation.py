"""A block of an open loop in, whether the engine kept up with it out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.domain.timing import Block, RequestTiming


# A queue that grows without bound makes late requests wait several times as long as
# early ones; a stable one only scatters.
GROWTH = 3.0
LEAST_REQUESTS = 24
# Waiting below this is not a queue, however fast it grew.
LEAST_TTFT_S = 0.5
KEEPS_UP = 0.93


def sustained_rps(block: Block, *, offered_rps: float) -> float | None:
    """Requests per second the engine sustained, if that was less than offered.

    None when it kept up. Past capacity an open loop has no steady state: time to
    first token grows with every arrival, and answers leave more slowly than
    requests come.
    """
    timings = sorted(block.timings, key=lambda t: t.scheduled_s)
    if len(timings) < LEAST_REQUESTS or not _waiting_grows(timings):
        return None
    finished = max(t.last_token_s for t in timings) - timings[0].scheduled_s
    rate = len(timings) / finished
    return rate if rate < KEEPS_UP * offered_rps else None


def _waiting_grows(timings: Sequence[RequestTiming]) -> bool:
    third = len(timings) // 3
    early = median(t.ttft_s for t in timings[:third])
    late = median(t.ttft_s for t in timings[-third:])
    return late > LEAST_TTFT_S and late > GROWTH * early
