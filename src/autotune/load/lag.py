"""The load generator's own delays in, a reason not to believe a block out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import TracebackType
from typing import Self

from autotune.domain.timing import RequestTiming


TIMER_RESOLUTION_S = 0.001
"""asyncio rounds its waits up to whole milliseconds; less is not lag."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How late the event loop was over a block, in seconds.

    Attributes:
        mean_s: Mean over the block's time.
        p99_s: Exceeded in 1 % of the block's time.
        max_s: The longest stall.
        sample_count: Due times looked at.
    """

    mean_s: float
    p99_s: float
    max_s: float
    sample_count: int


@dataclass(frozen=True, slots=True)
class LagBounds:
    """How far the generator's own delays may have moved a block's result.

    Attributes:
        ttft_fraction: Of the block's p50 and p95 TTFT.
        tpot_fraction: Of its mean TPOT.
        resolution_s: Delay that the timer cannot tell from none.
    """

    ttft_fraction: float = 0.02
    tpot_fraction: float = 0.01
    resolution_s: float = TIMER_RESOLUTION_S


class LagSampler:
    """Notes how late the running event loop is; an async context manager.

    Every ``period_s`` it asks to be called, and records by how much that was missed.
    A stall also delays what would have come during it: each due time that a stall
    swallowed counts with the wait it would have had, so that one stall of a second
    weighs a second and not one sample.
    """

    def __init__(self, *, period_s: float = 0.005) -> None:
        self._period_s = period_s
        self._lags_s: list[float] = []
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._arm()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self) -> Lag:
        """The lag since the start or the last ``take``."""
        lags_s, self._lags_s = self._lags_s, []
        return summarise_lag(lags_s)

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + self._period_s
        self._timer = loop.call_at(self._due_s, self._sample)

    def _sample(self) -> None:
        late_s = max(time.monotonic() - self._due_s, 0.0)
        self._lags_s.extend(spread_stall(late_s, period_s=self._period_s))
        self._arm()


def spread_stall(late_s: float, *, period_s: float) -> list[float]:
    """The waits of all due times, ``period_s`` apart, that one late sample covers."""
    return [late_s - i * period_s for i in range(int(late_s / period_s) + 1)]


def summarise_lag(lags_s: Sequence[float]) -> Lag:
    """Mean, 99th percentile (nearest rank) and maximum of ``lags_s``."""
    if not lags_s:
        return Lag(mean_s=0.0, p99_s=0.0, max_s=0.0, sample_count=0)
    ordered = sorted(lags_s)
    return Lag(
        mean_s=fmean(ordered),
        p99_s=_percentile(ordered, 0.99),
        max_s=ordered[-1],
        sample_count=len(ordered),
    )


def worst_lag(lags: Iterable[Lag]) -> Lag:
    """Several loops as one: the worst of each figure, so that none can hide."""
    kept = list(lags)
    return Lag(
        mean_s=max((lag.mean_s for lag in kept), default=0.0),
        p99_s=max((lag.p99_s for lag in kept), default=0.0),
        max_s=max((lag.max_s for lag in kept), default=0.0),
        sample_count=sum(lag.sample_count for lag in kept),
    )


def judge(
    lag: Lag,
    *,
    timings: Sequence[RequestTiming],
    bounds: LagBounds | None = None,
) -> str | None:
    """Why lag and lateness make a block unbelievable; None when they do not.

    A request sent late by l and read late by r shows a TTFT that is l + r too long,
    so p50 TTFT can have moved by median lateness + mean lag, and p95 TTFT by p95
    lateness + p99 lag. Both ends of an answer are read late, so TPOT can have moved
    by p99 lag over the gaps of the answer. Each is held against its bound; what lies
    below the timer's resolution is left out on both sides.
    """
    bounds = bounds or LagBounds()
    if not timings:
        return None
    if not lag.sample_count:
        return "the event loop's lag was not sampled"
    reasons = (
        _judge_ttft("p50", 0.50, lag.mean_s, timings, bounds),
        _judge_ttft("p95", 0.95, lag.p99_s, timings, bounds),
        _judge_tpot(lag, timings, bounds),
    )
    return next((reason for reason in reasons if reason), None)


def _judge_ttft(
    name: str,
    rank: float,
    lag_s: float,
    timings: Sequence[RequestTiming],
    bounds: LagBounds,
) -> str | None:
    late_s = _percentile(sorted(t.sent_s - t.scheduled_s for t in timings), rank)
    ttft_s = _percentile(sorted(t.ttft_s for t in timings), rank)
    moved_s = _seen(late_s, bounds) + _seen(lag_s, bounds)
    if moved_s <= bounds.ttft_fraction * ttft_s:
        return None
    return (
        f"the load generator may have moved {name} TTFT ({ttft_s * 1e3:.1f} ms) by "
        f"{moved_s * 1e3:.1f} ms: sent {late_s * 1e3:.1f} ms late, "
        f"event loop {lag_s * 1e3:.1f} ms late (bound {bounds.ttft_fraction:.0%})"
    )


def _judge_tpot(
    lag: Lag, timings: Sequence[RequestTiming], bounds: LagBounds
) -> str | None:
    rated = [(t.tpot_s, t.output_tokens) for t in timings if t.tpot_s is not None]
    if not rated:
        return None
    tpot_s = fmean(tpot for tpot, _ in rated)
    gap_count = fmean(tokens - 1 for _, tokens in rated)
    moved_s = _seen(lag.p99_s, bounds) / gap_count
    if moved_s <= bounds.tpot_fraction * tpot_s:
        return None
    return (
        f"the load generator may have moved TPOT ({tpot_s * 1e3:.2f} ms) by "
        f"{moved_s * 1e3:.2f} ms: event loop {lag.p99_s * 1e3:.1f} ms late "
        f"(bound {bounds.tpot_fraction:.0%})"
    )


def _seen(delay_s: float, bounds: LagBounds) -> float:
    return max(delay_s - bounds.resolution_s, 0.0)


def _percentile(ordered: Sequence[float], rank: float) -> float:
    """Nearest rank, as the smallest value that ``rank`` of all do not exceed."""
    return ordered[min(int(rank * len(ordered)), len(ordered) - 1)]
