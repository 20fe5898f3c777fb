"""Figures of a level are those a reader can work out by hand."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.timing import Block, LevelResult, RequestFailure, RequestTiming
from autotune.score.summary import summarize


def timing(first_s, *, gap_s=0.01, tokens=3):
    stamps = tuple(first_s + i * gap_s for i in range(tokens))
    return RequestTiming(
        "r", "w", "l", 0, 0, 0.0, 0.0, first_s, stamps[-1], stamps, 8, tokens, 0, None
    )


def block(timings, *, failures=0, void=None, duration_s=2.0):
    failed = (RequestFailure("r", "w", "l", 0, 0.0, 0.0, 1.0, "x"),) * failures
    return Block(
        "w", "l", 0, datetime.now(UTC), duration_s, tuple(timings), failed, void, {}
    )


def summary(*blocks):
    return summarize(LevelResult("w", "l", blocks))


def test_percentiles_are_of_the_requests_of_a_block():
    found = summary(block([timing(n / 10) for n in range(1, 5)]))

    assert found.requests == 4
    assert found.ttft_p50_ms == pytest.approx(250)
    assert found.ttft_p95_ms == pytest.approx(385)
    assert found.ttft_p99_ms == pytest.approx(397)


def test_one_disturbed_block_of_three_moves_nothing():
    found = summary(
        block([timing(0.1)]), block([timing(9.0)], duration_s=9.0), block([timing(0.1)])
    )

    assert found.ttft_p99_ms == pytest.approx(100)
    assert found.requests_per_s == pytest.approx(0.5)
    assert found.requests == 3


def test_rates_are_of_the_time_a_block_took():
    found = summary(block([timing(0.1)] * 4, duration_s=2.0))

    assert found.requests_per_s == pytest.approx(2.0)
    assert found.output_tokens_per_s == pytest.approx(6.0)


def test_tpot_is_a_mean_over_requests_and_itl_is_of_gaps():
    long, short = timing(0.1, gap_s=0.01, tokens=101), timing(0.1, gap_s=0.05, tokens=2)

    found = summary(block([long, short]))

    assert found.tpot_mean_ms == pytest.approx(30)
    assert found.tpot_p50_ms == pytest.approx(30)
    assert found.itl_p99_ms == pytest.approx(10)


def test_void_blocks_do_not_count_and_failures_do():
    found = summary(
        block([timing(0.1)], failures=2), block([timing(9.0)], void="x", failures=5)
    )

    assert (found.requests, found.failed) == (1, 2)
    assert found.ttft_p99_ms == pytest.approx(100)
    assert found.requests_per_s == pytest.approx(0.5)


def test_one_token_outputs_have_no_tpot():
    found = summary(block([timing(0.1, tokens=1)]))

    assert math.isnan(found.tpot_mean_ms)
    assert math.isnan(found.itl_p99_ms)
    assert found.ttft_p50_ms == pytest.approx(100)


def test_nothing_answered_is_no_summary():
    assert summary() is None
    assert summary(block([], failures=3)) is None
    assert summary(block([timing(0.1)], void="x")) is None


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=30))
def test_percentiles_are_ordered_and_within_what_was_seen(firsts):
    found = summary(block([timing(f) for f in firsts]))

    seen = [f * 1000 for f in firsts]
    ordered = [found.ttft_p50_ms, found.ttft_p95_ms, found.ttft_p99_ms]
    assert ordered == sorted(ordered)
    assert min(seen) * 0.999 <= ordered[0]
    assert ordered[-1] <= max(seen) * 1.001
