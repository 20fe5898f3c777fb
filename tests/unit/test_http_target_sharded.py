"""Load processes answer as one target, on one clock, and end with it."""

import asyncio
import time
from dataclasses import replace

import pytest

from autotune.domain.timing import RequestTiming
from autotune.errors import EngineDied, HostUnfit
from autotune.load import Chunk, PlannedRequest
from autotune.load.lag import Lag
from autotune.load.mock_server import MockAnswer, MockLatency, running_mock
from autotune.load.self_test import (
    Reading,
    SelfTestReport,
    read_streams,
    without_mock_lateness,
)
from autotune.load.sharded import ShardedTarget


LATENCY = MockLatency(ttft_s=0.03, itl_s=0.002)
REQUEST = PlannedRequest(
    request_id="r",
    group=0,
    scheduled_s=0.0,
    prompt_token_ids=(1, 2),
    output_tokens=5,
)


@pytest.fixture(scope="module")
def mock_url():
    with running_mock(LATENCY) as url:
        yield url


def test_answers_of_several_processes_bear_the_clock_of_this_one(mock_url):
    async def scenario() -> tuple[float, list[list[Chunk]], float, Lag]:
        async with ShardedTarget(
            mock_url, model="m", shards=2, connections=4
        ) as target:
            sent_s = time.perf_counter()

            async def ask() -> list[Chunk]:
                return [chunk async for chunk in target.stream(REQUEST)]

            answers = await asyncio.gather(*(ask() for _ in range(4)))
            return sent_s, answers, time.perf_counter(), await target.take_lag()

    sent_s, answers, ended_s, lag = asyncio.run(scenario())

    assert [sum(c.token_count for c in answer) for answer in answers] == [5] * 4
    for answer in answers:
        assert sent_s + LATENCY.ttft_s <= answer[0].received_s <= ended_s
    assert lag.sample_count > 0


def test_a_load_process_that_ends_fails_its_requests_by_name(mock_url):
    async def scenario() -> None:
        async with ShardedTarget(
            mock_url, model="m", shards=1, connections=1
        ) as target:
            target._shards[0]._process.kill()
            async for _ in target.stream(REQUEST):
                pass

    with pytest.raises(HostUnfit, match="load process has ended"):
        asyncio.run(scenario())


def test_nobody_listening_is_said_before_processes_are_of_use():
    async def scenario() -> None:
        async with ShardedTarget(
            "http://127.0.0.1:1", model="m", shards=1, connections=1
        ):
            pass

    with pytest.raises(EngineDied):
        asyncio.run(scenario())


def test_a_reading_of_the_mock_loses_no_request(mock_url):
    reading = asyncio.run(
        read_streams(mock_url, 2, shards=1, rounds=2, latency=LATENCY)
    )

    assert len(reading.timings) == 4
    assert reading.ttft_p50_s >= LATENCY.ttft_s


def test_the_mocks_own_lateness_is_taken_out_of_a_timing():
    timing = RequestTiming(
        request_id="r",
        workload="w",
        level="l",
        block=0,
        group=0,
        scheduled_s=1.0,
        sent_s=1.0,
        first_token_s=1.25,
        last_token_s=2.0,
        token_offsets_s=(),
        prompt_tokens=1,
        output_tokens=5,
        cached_tokens=None,
        finish_reason="length",
    )
    answer = MockAnswer("r", 1.0, 1.003, due_s=(1.2, 1.9), stamp_s=(1.24, 1.95))

    exact = without_mock_lateness(timing, answer)

    assert exact.first_token_s == pytest.approx(1.207)
    assert exact.last_token_s == pytest.approx(1.947)


def test_the_ceiling_is_the_last_number_before_the_first_void():
    reading = Reading(8, 1, (), 0.2, 0.2, 0.02, 1.0, Lag(0, 0, 0, 1), None)
    readings = (
        replace(reading, streams=64, void="late"),
        reading,
        replace(reading, streams=32),
        replace(reading, streams=128),
    )

    assert SelfTestReport(LATENCY, readings).ceiling_streams == 32
    assert SelfTestReport(LATENCY, readings[:1]).ceiling_streams == 0
