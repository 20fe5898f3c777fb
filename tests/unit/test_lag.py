"""The load generator notices its own delays and says when they matter."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.timing import RequestTiming
from autotune.load.lag import (
    Lag,
    LagBounds,
    LagSampler,
    judge,
    spread_stall,
    summarise_lag,
    worst_lag,
)


CALM = Lag(mean_s=0.0002, p99_s=0.0009, max_s=0.003, sample_count=1000)


def timing(
    *, ttft_s: float = 0.2, late_s: float = 0.0, tokens: int = 64, tpot_s: float = 0.02
) -> RequestTiming:
    return RequestTiming(
        request_id="a",
        workload="w",
        level="l",
        block=0,
        group=0,
        scheduled_s=1.0,
        sent_s=1.0 + late_s,
        first_token_s=1.0 + ttft_s,
        last_token_s=1.0 + ttft_s + tpot_s * (tokens - 1),
        token_offsets_s=(),
        prompt_tokens=8,
        output_tokens=tokens,
        cached_tokens=None,
        finish_reason="length",
    )


def test_a_calm_loop_makes_no_block_void():
    assert judge(CALM, timings=[timing()] * 20) is None


def test_stalls_longer_than_the_bound_void_the_block_and_say_by_how_much():
    stalled = Lag(mean_s=0.0005, p99_s=0.009, max_s=0.02, sample_count=1000)

    reason = judge(stalled, timings=[timing()] * 20)

    assert reason is not None
    assert "p95 TTFT (200.0 ms) by 8.0 ms" in reason


def test_the_same_stalls_do_not_matter_to_a_slow_answer():
    stalled = Lag(mean_s=0.0005, p99_s=0.009, max_s=0.02, sample_count=1000)

    assert judge(stalled, timings=[timing(ttft_s=2.0)] * 20) is None


def test_requests_sent_late_void_the_block_even_when_the_loop_is_calm():
    reason = judge(CALM, timings=[timing(late_s=0.006)] * 20)

    assert "sent 6.0 ms late" in (reason or "")


def test_stalls_can_void_tpot_where_answers_are_short():
    stalled = Lag(mean_s=0.0005, p99_s=0.004, max_s=0.02, sample_count=1000)

    reason = judge(stalled, timings=[timing(tokens=4)] * 20)

    assert "TPOT" in (reason or "")


def test_answers_of_one_token_have_no_tpot_to_move():
    assert judge(CALM, timings=[timing(tokens=1)] * 20) is None


def test_a_block_whose_lag_nobody_watched_is_void():
    nobody = Lag(mean_s=0.0, p99_s=0.0, max_s=0.0, sample_count=0)

    assert "not sampled" in (judge(nobody, timings=[timing()]) or "")


def test_a_block_without_answers_is_not_for_lag_to_judge():
    assert judge(CALM, timings=[]) is None


@given(st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0.001, 1))
def test_more_lag_never_makes_a_void_block_valid(lag_s, more_s, ttft_s):
    def verdict(p99_s: float) -> str | None:
        lag = Lag(mean_s=p99_s / 2, p99_s=p99_s, max_s=p99_s, sample_count=10)
        return judge(lag, timings=[timing(ttft_s=ttft_s)], bounds=LagBounds())

    if verdict(lag_s) is not None:
        assert verdict(lag_s + more_s) is not None


def test_a_stall_counts_for_all_the_time_it_took():
    assert spread_stall(0.012, period_s=0.005) == pytest.approx([0.012, 0.007, 0.002])
    assert spread_stall(0.0, period_s=0.005) == [0.0]


def test_the_worst_of_several_loops_is_what_counts():
    lags = [Lag(0.1, 0.2, 0.9, 5), Lag(0.2, 0.1, 0.3, 7)]

    assert worst_lag(lags) == Lag(0.2, 0.2, 0.9, 12)


def test_no_samples_are_no_lag_and_no_samples():
    assert summarise_lag([]) == Lag(0.0, 0.0, 0.0, 0)


def test_a_blocked_event_loop_is_seen():
    async def block() -> Lag:
        async with LagSampler(period_s=0.002) as sampler:
            await asyncio.sleep(0.01)
            time.sleep(0.1)  # noqa: ASYNC251 - the stall under test
            await asyncio.sleep(0.01)
            return sampler.take()

    lag = asyncio.run(block())

    assert lag.max_s > 0.08
    assert lag.mean_s > 0.02


def test_taking_the_lag_starts_a_new_count():
    async def take_twice() -> tuple[Lag, Lag]:
        async with LagSampler(period_s=0.002) as sampler:
            await asyncio.sleep(0.02)
            return sampler.take(), sampler.take()

    first, second = asyncio.run(take_twice())

    assert first.sample_count > 0
    assert second.sample_count == 0
