"""Numbers of streams in, how truly this box measures each of them out."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from statistics import fmean

import httpx

from autotune.domain.timing import RequestTiming
from autotune.errors import InputError, RequestRefused
from autotune.load import Chunk, PlannedRequest, Target
from autotune.load.http_target import HttpTarget
from autotune.load.lag import Lag, LagSampler, judge, worst_lag
from autotune.load.mock_server import (
    MockAnswer,
    MockLatency,
    read_ledger,
    running_mock,
)
from autotune.load.sharded import ShardedTarget
from autotune.load.transport import StampingTransport


PROMPT_TOKENS = 256
OUTPUT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read at one number of streams, the mock's own lateness taken out.

    Attributes:
        streams: Requests in flight at any time.
        shards: Load processes.
        timings: The answered requests.
        ttft_p50_s: Median TTFT.
        ttft_p95_s: 95th percentile of TTFT.
        tpot_s: Mean TPOT.
        tokens_per_s: Output tokens received, over the whole run.
        lag: The event loops' delay.
        void: Why the reading may not be believed; None when it may.
    """

    streams: int
    shards: int
    timings: tuple[RequestTiming, ...]
    ttft_p50_s: float
    ttft_p95_s: float
    tpot_s: float
    tokens_per_s: float
    lag: Lag
    void: str | None


@dataclass(frozen=True, slots=True)
class SelfTestReport:
    """The truth, and what this box reads of it."""

    latency: MockLatency
    readings: tuple[Reading, ...]

    @property
    def ceiling_streams(self) -> int:
        """The most streams below which every reading is valid; 0 for none."""
        ceiling = 0
        for reading in sorted(self.readings, key=lambda r: r.streams):
            if reading.void is not None:
                break
            ceiling = reading.streams
        return ceiling


def self_test(
    streams: Sequence[int],
    *,
    shards: Sequence[int] = (1, 2),
    rounds: int = 4,
    latency: MockLatency | None = None,
) -> SelfTestReport:
    """Measure a mock of known latency at each number of ``streams``.

    Each stream sends ``rounds`` requests, one after the other; streams start evenly
    spread over one answer's duration, so that ``streams`` are in flight throughout.
    A number that is void with one count of load processes is tried with the next of
    ``shards``, and stays void when none reads it.

    Raises:
        HostUnfit: The mock or a load process did not come up.
    """
    latency = latency or MockLatency()
    with running_mock(latency) as base_url:
        readings = tuple(
            read_best(base_url, count, shards=shards, rounds=rounds, latency=latency)
            for count in streams
        )
    return SelfTestReport(latency=latency, readings=readings)


def read_best(
    base_url: str,
    streams: int,
    *,
    shards: Sequence[int],
    rounds: int,
    latency: MockLatency,
) -> Reading:
    """The first valid reading over ``shards``, or the last void one.

    Raises:
        InputError: ``shards`` is empty.
        HostUnfit: A load process did not come up.
    """
    for processes in shards:
        reading = asyncio.run(
            read_streams(
                base_url, streams, shards=processes, rounds=rounds, latency=latency
            )
        )
        if reading.void is None or processes == shards[-1]:
            return reading
    raise InputError("shards: want at least one count of load processes")


async def read_streams(
    base_url: str,
    streams: int,
    *,
    shards: int,
    rounds: int,
    latency: MockLatency,
) -> Reading:
    """One reading of the mock at ``base_url`` by this package's own targets.

    Raises:
        EngineDied: The mock does not answer.
        HostUnfit: A load process did not come up.
    """
    if shards == 1:
        transport = StampingTransport(stamps_writes=True)
        async with HttpTarget(
            base_url, model="mock", connections=streams, transport=transport
        ) as target:
            return await read_target(
                target, base_url, streams, rounds=rounds, latency=latency
            )
    async with ShardedTarget(
        base_url,
        model="mock",
        shards=shards,
        connections=streams,
        stamps_writes=True,
    ) as sharded:
        await sharded.take_lag()
        reading = await read_target(
            sharded, base_url, streams, rounds=rounds, latency=latency
        )
        lag = worst_lag((reading.lag, await sharded.take_lag()))
    void = reading.void or judge(lag, timings=reading.timings)
    return replace(reading, shards=shards, lag=lag, void=void)


async def read_target(
    target: Target,
    base_url: str,
    streams: int,
    *,
    rounds: int,
    latency: MockLatency,
) -> Reading:
    """One reading of the mock at ``base_url`` through any target that leads there."""
    await _fetch_ledger(base_url)
    async with LagSampler() as sampler, _collector_paused():
        timings = await _drive(target, streams, rounds=rounds, latency=latency)
        lag = sampler.take()
    truth = await _fetch_ledger(base_url)
    exact = tuple(without_mock_lateness(t, truth[t.request_id]) for t in timings)
    return _summarise(exact, lag, streams=streams, wanted=streams * rounds)


@asynccontextmanager
async def _collector_paused() -> AsyncGenerator[None]:
    """No garbage collection inside a measurement: it stalls every stream at once."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def without_mock_lateness(timing: RequestTiming, answer: MockAnswer) -> RequestTiming:
    """``timing`` as it would be had the mock read and written without delay.

    It read late by received - written, where the client said when it wrote, and
    wrote each token late by stamp - due. What is left is the client's own.
    """
    read_late_s = answer.received_s - answer.written_s
    first_late_s = read_late_s + answer.stamp_s[0] - answer.due_s[0]
    last_late_s = read_late_s + answer.stamp_s[-1] - answer.due_s[-1]
    return RequestTiming(
        request_id=timing.request_id,
        workload=timing.workload,
        level=timing.level,
        block=timing.block,
        group=timing.group,
        scheduled_s=timing.scheduled_s,
        sent_s=timing.sent_s,
        first_token_s=timing.first_token_s - first_late_s,
        last_token_s=timing.last_token_s - last_late_s,
        token_offsets_s=(),
        prompt_tokens=timing.prompt_tokens,
        output_tokens=timing.output_tokens,
        cached_tokens=timing.cached_tokens,
        finish_reason=timing.finish_reason,
    )


async def _drive(
    target: Target,
    streams: int,
    *,
    rounds: int,
    latency: MockLatency,
) -> list[RequestTiming]:
    answer_s = latency.ttft_s + latency.itl_s * (OUTPUT_TOKENS - 1)
    start_s = time.perf_counter() + 0.1
    slots = (
        _run_slot(target, slot, start_s + slot * answer_s / streams, rounds=rounds)
        for slot in range(streams)
    )
    return [timing for slot in await asyncio.gather(*slots) for timing in slot]


async def _run_slot(
    target: Target, slot: int, start_s: float, *, rounds: int
) -> list[RequestTiming]:
    timings = []
    scheduled_s = start_s
    for turn in range(rounds):
        request = PlannedRequest(
            request_id=f"{slot}-{turn}",
            group=0,
            scheduled_s=scheduled_s,
            prompt_token_ids=tuple(range(PROMPT_TOKENS)),
            output_tokens=OUTPUT_TOKENS,
        )
        await asyncio.sleep(max(scheduled_s - time.perf_counter(), 0.0))
        timing = await _time(target, request)
        if timing is not None:
            timings.append(timing)
        scheduled_s = time.perf_counter()
    return timings


async def _time(target: Target, request: PlannedRequest) -> RequestTiming | None:
    sent_s = time.perf_counter()
    try:
        chunks: list[Chunk] = [chunk async for chunk in target.stream(request)]
    except RequestRefused:
        return None  # counted: the reading has fewer requests than wanted
    spoken = [chunk for chunk in chunks if chunk.token_count]
    return RequestTiming(
        request_id=request.request_id,
        workload="self-test",
        level="self-test",
        block=0,
        group=0,
        scheduled_s=request.scheduled_s,
        sent_s=sent_s,
        first_token_s=spoken[0].received_s,
        last_token_s=spoken[-1].received_s,
        token_offsets_s=(),
        prompt_tokens=chunks[-1].prompt_tokens or 0,
        output_tokens=sum(chunk.token_count for chunk in spoken),
        cached_tokens=chunks[-1].cached_tokens,
        finish_reason=chunks[-1].finish_reason,
    )


def _summarise(
    timings: Sequence[RequestTiming],
    lag: Lag,
    *,
    streams: int,
    wanted: int,
) -> Reading:
    ttfts_s = sorted(t.ttft_s for t in timings)
    span_s = max(t.last_token_s for t in timings) - min(t.sent_s for t in timings)
    lost = wanted - len(timings)
    void = f"{lost} of {wanted} requests failed" if lost else None
    return Reading(
        streams=streams,
        shards=1,
        timings=tuple(timings),
        ttft_p50_s=ttfts_s[len(ttfts_s) // 2],
        ttft_p95_s=ttfts_s[int(0.95 * len(ttfts_s))],
        tpot_s=fmean(t.tpot_s for t in timings if t.tpot_s is not None),
        tokens_per_s=sum(t.output_tokens for t in timings) / span_s,
        lag=lag,
        void=void or judge(lag, timings=timings),
    )


async def _fetch_ledger(base_url: str) -> dict[str, MockAnswer]:
    async with StampingTransport() as transport:
        request = httpx.Request("GET", f"{base_url}/ledger")
        response = await transport.handle_async_request(request)
        return read_ledger(await response.aread())
