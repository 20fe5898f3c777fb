"""1 is the reference, lower is better, and no failure beats a measurement."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.outcome import (
    EnvironmentFault,
    Evidence,
    Infeasible,
    Measured,
    OutOfMemory,
    Saturated,
)
from autotune.domain.timing import Block, LevelResult, RequestFailure, RequestTiming
from autotune.score.scoring import CAP, score


EVIDENCE = Evidence("oom_kv_cache", "settings", "no memory")
MILLISECONDS = st.floats(0.01, 1e5)
BYTES = st.none() | st.integers(0, 2**45)


def timing(ttft_ms, tpot_ms, *, tokens=4, at_s=1.0):
    first = at_s + ttft_ms / 1000
    stamps = tuple(first + i * tpot_ms / 1000 for i in range(tokens))
    return RequestTiming(
        "r", "w", "l", 0, 0, at_s, at_s, first, stamps[-1], stamps, 8, tokens, 0, "stop"
    )


def failure():
    return RequestFailure("r", "w", "l", 0, 0.0, 0.0, 1.0, "refused")


def block(*timings, failures=0, void=None, index=0, duration_s=2.0):
    failed = (failure(),) * failures
    return Block(
        "w", "l", index, datetime.now(UTC), duration_s, timings, failed, void, {}
    )


def level(*blocks, name="l"):
    return LevelResult("w", name, blocks)


def measured(ttft_ms=10.0, tpot_ms=2.0, **options):
    return Measured((level(block(timing(ttft_ms, tpot_ms, **options))),))


def test_the_reference_scores_one_against_itself():
    assert score(measured(), measured().levels).value == pytest.approx(1.0)
    assert score(measured(), None).value == pytest.approx(1.0)


def test_the_score_is_the_root_of_both_ratios():
    judged = score(measured(20.0, 8.0), measured(10.0, 2.0).levels)

    assert judged.value == pytest.approx((2 * 4) ** 0.5)
    assert judged.feasible


def test_levels_count_by_their_geometric_mean():
    def two(first, second):
        return tuple(
            level(block(timing(ms, 2.0)), name=name)
            for name, ms in (("a", first), ("b", second))
        )

    judged = score(Measured(two(10.0, 40.0)), two(10.0, 10.0))

    assert judged.value == pytest.approx((1 * 2) ** 0.5)


@given(st.tuples(*[MILLISECONDS] * 4), BYTES, BYTES)
def test_out_of_memory_never_beats_a_measurement(latencies_ms, shortfall, needed):
    ttft, tpot, reference_ttft, reference_tpot = latencies_ms
    worst = score(measured(ttft, tpot), measured(reference_ttft, reference_tpot).levels)
    oom = score(OutOfMemory("oom_kv_cache", EVIDENCE, shortfall, needed), None)
    invalid = score(Infeasible(EVIDENCE), None)
    saturated = score(Saturated(1.0), None)

    assert worst.value <= CAP < min(oom.value, invalid.value)
    assert saturated.value == CAP
    assert worst.feasible
    assert not oom.feasible
    assert not invalid.feasible


@given(BYTES, BYTES)
def test_the_penalty_stays_within_its_bounds(shortfall, needed):
    judged = score(OutOfMemory("oom_kv_cache", EVIDENCE, shortfall, needed), None)

    assert 1000 <= judged.value <= 10_000
    assert judged.constraints["memory"] > 0


def test_the_more_is_missing_the_higher_the_penalty():
    scores = [
        score(OutOfMemory("p", EVIDENCE, missing, 100), None).value
        for missing in (0, 10, 50, 900, 5000)
    ]

    assert scores == [1000, 1100, 1500, 10_000, 10_000]


@pytest.mark.parametrize(
    "outcome",
    [
        measured(),
        Saturated(1.0),
        OutOfMemory("p", EVIDENCE),
        Infeasible(EVIDENCE),
        Measured((level(block(failures=1)),)),
    ],
    ids=lambda o: type(o).__name__,
)
def test_every_score_names_every_constraint(outcome):
    judged = score(outcome, measured().levels)

    assert set(judged.constraints) == {"memory", "settings", "failed_requests"}


def test_a_fault_of_the_environment_says_nothing():
    assert score(EnvironmentFault(EVIDENCE), measured().levels) is None


def test_blocks_that_are_all_void_say_nothing():
    void = Measured((level(block(timing(1, 1), void="disturbed")),))

    assert score(void, measured().levels) is None


def test_a_level_that_was_not_measured_says_nothing_of_the_whole():
    reference = (*measured().levels, level(block(timing(1, 1)), name="other"))

    assert score(measured(), reference) is None


@pytest.mark.parametrize("answered", [0, 3])
def test_failed_requests_are_infeasible_and_at_the_cap(answered):
    timings = [timing(0.1, 0.1)] * answered
    judged = score(Measured((level(block(*timings, failures=1)),)), measured().levels)

    assert judged.value == CAP
    assert judged.constraints["failed_requests"] == 1 / (1 + answered)


def test_failures_of_a_void_block_are_not_held_against_the_settings():
    blocks = block(timing(10, 2)), block(failures=3, void="EngineDied: x")

    assert score(Measured((level(*blocks),)), measured().levels).feasible


def test_outputs_of_one_token_are_judged_by_ttft_alone():
    judged = score(measured(20, 0, tokens=1), measured(10, 0, tokens=1).levels)

    assert judged.value == pytest.approx(2.0)


@pytest.mark.parametrize("at_once", ["trial", "reference"])
def test_tokens_that_all_come_at_once_are_judged_by_ttft_alone(at_once):
    trial = measured(20, 0 if at_once == "trial" else 2)
    reference = measured(10, 0 if at_once == "reference" else 2)

    assert score(trial, reference.levels).value == pytest.approx(2.0)


def test_ttft_runs_from_the_schedule_and_tpot_leaves_the_first_token_out():
    late = replace(timing(10, 2), scheduled_s=0.5)

    assert late.ttft_s == pytest.approx(0.510)
    assert late.ttft_from_send_s == pytest.approx(0.010)
    assert late.tpot_s == pytest.approx(0.002)
    assert late.itl_s == pytest.approx((0.002,) * 3)
    assert timing(10, 2, tokens=1).tpot_s is None
