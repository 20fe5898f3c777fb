"""Planned requests and a target in, one block of timings out."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

from autotune.domain.request import PlannedRequest
from autotune.domain.timing import Block, RequestFailure, RequestTiming
from autotune.domain.workload import ClosedLoop, Level
from autotune.errors import AutotuneError, EngineFailure
from autotune.load import Target
from autotune.load.checks import EXACT, Checks, unequal
from autotune.load.lag import Lag, LagBounds, LagSampler, judge, worst_lag


@dataclass(frozen=True, slots=True)
class BlockRun:
    """A block, and the fault that ended it early if one did."""

    block: Block
    fault: EngineFailure | None


@runtime_checkable
class Sharded(Protocol):
    """A target that is driven by load processes of its own."""

    async def take_lag(self) -> Lag:
        """The worst of their lag since the last call."""
        ...


@dataclass(slots=True)
class _Tally:
    """What has come back so far."""

    workload: str
    level: str
    block: int
    origin_s: float
    timings: list[RequestTiming] = field(default_factory=list)
    failures: list[RequestFailure] = field(default_factory=list)
    fault: EngineFailure | None = None

    def now_s(self) -> float:
        return time.perf_counter() - self.origin_s


async def run_block(
    target: Target,
    requests: Sequence[PlannedRequest],
    *,
    workload: str,
    level: Level,
    block: int,
    bounds: LagBounds | None = None,
    checks: Checks = EXACT,
) -> BlockRun:
    """Send every request at its time and note when each token came.

    A request that fails is counted, never dropped; a fault of the engine ends the
    block, which keeps what it has and is void. So is a block whose result the event
    loop's own lag may have moved beyond ``bounds``, and one whose answers are not
    of the planned lengths.
    """
    await _lag_of(target)  # what lies before the block is not its own
    started_at = datetime.now(UTC)
    with _undisturbed():
        tally = _Tally(workload, level.label, block, time.perf_counter())
        slots = level.concurrency if isinstance(level, ClosedLoop) else None
        async with LagSampler() as sampler:
            await _send_all(target, requests, tally, slots=slots)
        duration_s = tally.now_s()
        lag = worst_lag((sampler.take(), *await _lag_of(target)))
    fault = f"{type(tally.fault).__name__}: {tally.fault}" if tally.fault else None
    void = (
        fault
        or judge(lag, timings=tally.timings, bounds=bounds)
        or unequal(requests, tally.timings, checks=checks)
    )
    timings = tuple(sorted(tally.timings, key=lambda t: t.request_id))
    whole = Block(
        workload=workload,
        level=level.label,
        index=block,
        started_at=started_at,
        duration_s=duration_s,
        timings=timings,
        failures=tuple(tally.failures),
        void=void,
        counters={
            "lag_mean_s": lag.mean_s,
            "lag_p99_s": lag.p99_s,
            "late_max_s": max((t.sent_s - t.scheduled_s for t in timings), default=0.0),
            "one_token_answers": float(sum(t.tpot_s is None for t in timings)),
        },
    )
    return BlockRun(whole, tally.fault)


async def _lag_of(target: Target) -> tuple[Lag, ...]:
    """What the target's own load processes lagged since the last time, if it has any.

    They do not answer when the target is gone; then its fault voids the block.
    """
    if not isinstance(target, Sharded):
        return ()
    try:
        return (await target.take_lag(),)
    except AutotuneError:
        return ()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Collect garbage before the block rather than inside it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _send_all(
    target: Target,
    requests: Sequence[PlannedRequest],
    tally: _Tally,
    *,
    slots: int | None,
) -> None:
    if slots is None:
        sends = [_send_on_time(target, r, tally) for r in requests]
    else:
        queue = iter(requests)
        sends = [_send_in_turn(target, queue, tally) for _ in range(slots)]
    tasks = [asyncio.create_task(s) for s in sends]
    try:
        await asyncio.gather(*tasks)
    except EngineFailure as fault:
        tally.fault = fault
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_on_time(target: Target, request: PlannedRequest, tally: _Tally) -> None:
    delay = request.scheduled_s - tally.now_s()
    if delay > 0:
        await asyncio.sleep(delay)
    await _send(target, request, tally, scheduled_s=request.scheduled_s)


async def _send_in_turn(
    target: Target, queue: Iterator[PlannedRequest], tally: _Tally
) -> None:
    scheduled_s = 0.0
    for request in queue:
        await _send(target, request, tally, scheduled_s=scheduled_s)
        scheduled_s = tally.now_s()


async def _send(
    target: Target, request: PlannedRequest, tally: _Tally, *, scheduled_s: float
) -> None:
    sent_s = tally.now_s()
    stamps: list[float] = []
    prompt_tokens, cached, reason = len(request.prompt_token_ids), None, None
    try:
        async for chunk in target.stream(request):
            stamps += [chunk.received_s - tally.origin_s] * chunk.token_count
            prompt_tokens = chunk.prompt_tokens or prompt_tokens
            cached = cached if chunk.cached_tokens is None else chunk.cached_tokens
            reason = chunk.finish_reason or reason
        if not stamps:
            raise AutotuneError("answered without a token")
    except (AutotuneError, asyncio.CancelledError) as error:
        text = str(error) or "abandoned: the engine failed"
        tally.failures.append(_failure(request, tally, scheduled_s, sent_s, text))
        if isinstance(error, EngineFailure | asyncio.CancelledError):
            raise
        return
    tally.timings.append(
        RequestTiming(
            request_id=request.request_id,
            workload=tally.workload,
            level=tally.level,
            block=tally.block,
            group=request.group,
            scheduled_s=scheduled_s,
            sent_s=sent_s,
            first_token_s=stamps[0],
            last_token_s=stamps[-1],
            token_offsets_s=tuple(stamps),
            prompt_tokens=prompt_tokens,
            output_tokens=len(stamps),
            cached_tokens=cached,
            finish_reason=reason,
        )
    )


def _failure(
    request: PlannedRequest,
    tally: _Tally,
    scheduled_s: float,
    sent_s: float,
    reason: str,
) -> RequestFailure:
    return RequestFailure(
        request_id=request.request_id,
        workload=tally.workload,
        level=tally.level,
        block=tally.block,
        scheduled_s=scheduled_s,
        sent_s=sent_s,
        failed_s=tally.now_s(),
        reason=reason,
    )
