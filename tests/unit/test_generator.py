"""The generator sends on time, stamps every token and loses no request."""

import asyncio
import gc
import time
from dataclasses import dataclass, field

import pytest

from autotune.domain.request import Chunk, PlannedRequest
from autotune.domain.workload import ClosedLoop, OpenLoop
from autotune.errors import EngineDied, RequestRefused
from autotune.load.checks import EXACT, Checks
from autotune.load.generator import run_block
from autotune.load.lag import Lag, LagBounds


@dataclass
class Target:
    """Answers after ``ttft_s`` with chunks of the sizes given; notes what it saw."""

    chunks: tuple[int, ...] = (1, 1)
    ttft_s: float = 0.01
    refuse: frozenset[str] = frozenset()
    die_at: str | None = None
    in_flight: int = 0
    most_in_flight: int = 0
    seen_s: dict[str, float] = field(default_factory=dict)

    async def stream(self, request):
        self.seen_s[request.request_id] = time.perf_counter()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.ttft_s)
            if request.request_id in self.refuse:
                raise RequestRefused("too long")
            if request.request_id == self.die_at:
                raise EngineDied("gone")
            for count in self.chunks:
                yield Chunk(time.perf_counter(), count, 7, 3, "length")
        finally:
            self.in_flight -= 1

    async def reset_caches(self):
        return True


def requests(*scheduled_s):
    return [
        PlannedRequest(f"r{i}", 0, s, (1,) * 7, 2) for i, s in enumerate(scheduled_s)
    ]


def run(target, planned, level, checks=EXACT):
    return asyncio.run(
        run_block(
            target,
            planned,
            workload="w",
            level=level,
            block=0,
            bounds=LagBounds(1e9, 1e9),
            checks=checks,
        )
    )


def test_an_open_loop_sends_at_the_scheduled_times_whatever_is_in_flight():
    target = Target(ttft_s=0.08)

    block = run(target, requests(0.0, 0.02, 0.04), OpenLoop(50)).block

    late = [t.sent_s - t.scheduled_s for t in block.timings]
    assert [t.scheduled_s for t in block.timings] == [0.0, 0.02, 0.04]
    assert min(late) >= 0
    assert target.most_in_flight == 3


def test_a_closed_loop_keeps_its_number_in_flight():
    target = Target()

    block = run(target, requests(*[0.0] * 7), ClosedLoop(3)).block

    assert target.most_in_flight == 3
    assert len(block.timings) == 7
    assert all(t.sent_s >= t.scheduled_s for t in block.timings)


def test_every_token_has_a_stamp_and_a_chunks_tokens_share_theirs():
    (timing,) = run(
        Target(chunks=(0, 2, 1)), requests(0.0), ClosedLoop(1)
    ).block.timings

    stamps = timing.token_offsets_s
    assert len(stamps) == timing.output_tokens == 3
    assert stamps[0] == stamps[1] <= stamps[2]
    assert (timing.first_token_s, timing.last_token_s) == (stamps[0], stamps[2])
    assert timing.ttft_s >= 0.01
    assert (timing.prompt_tokens, timing.cached_tokens) == (7, 3)
    assert timing.finish_reason == "length"


def test_a_refused_request_is_counted_and_the_others_go_on():
    found = run(Target(refuse={"r1"}), requests(*[0.0] * 3), ClosedLoop(1))

    assert [t.request_id for t in found.block.timings] == ["r0", "r2"]
    (failure,) = found.block.failures
    assert (failure.request_id, failure.reason) == ("r1", "too long")
    assert failure.failed_s >= failure.sent_s
    assert found.fault is None
    assert found.block.void is None


def test_an_answer_without_a_token_is_a_failure():
    found = run(Target(chunks=(0,)), requests(0.0), ClosedLoop(1))

    assert found.block.timings == ()
    assert found.block.failures[0].reason == "answered without a token"


@pytest.mark.parametrize("level", [ClosedLoop(3), OpenLoop(1.0)])
def test_a_dead_engine_ends_the_block_and_every_request_sent_is_accounted_for(level):
    target = Target(die_at="r1")

    found = run(target, requests(0.0, 0.0, 0.005, 30.0), level)

    assert isinstance(found.fault, EngineDied)
    assert found.block.void == "EngineDied: gone"
    answered = {t.request_id for t in found.block.timings}
    failed = {f.request_id for f in found.block.failures}
    assert answered | failed == set(target.seen_s)
    assert not answered & failed
    assert found.block.duration_s < 5
    assert target.in_flight == 0


def test_garbage_is_collected_again_after_a_block():
    run(Target(), requests(0.0), ClosedLoop(1))

    assert gc.isenabled()


def test_answers_of_another_length_than_planned_void_the_block():
    found = run(Target(chunks=(1,)), requests(0.0, 0.0), ClosedLoop(1))

    assert len(found.block.timings) == 2
    assert found.block.void == (
        "2 of 2 answers have another output length than planned (1 tokens instead of "
        "2; in all 4 planned, 2 came)"
    )


def test_prompts_that_the_server_counts_otherwise_void_the_block():
    planned = [PlannedRequest("r0", 0, 0.0, (1,) * 5, 2)]

    found = run(Target(), planned, ClosedLoop(1))

    assert "another prompt length" in found.block.void
    assert "7 tokens instead of 5" in found.block.void


def test_lengths_that_a_target_does_not_promise_are_not_held_against_it():
    planned = [PlannedRequest("r0", 0, 0.0, (1,) * 5, 9)]
    promised = Checks(prompt_tokens=False, output_tokens=False)

    found = run(Target(), planned, ClosedLoop(1), promised)

    assert found.block.void is None


def test_a_refused_request_is_not_a_missing_length():
    found = run(Target(refuse={"r0"}), requests(0.0, 0.0), ClosedLoop(1))

    assert found.block.void is None
    assert len(found.block.failures) == 1


def test_one_token_answers_are_counted_and_have_no_tpot():
    planned = [PlannedRequest("r0", 0, 0.0, (1,) * 7, 1)]

    block = run(Target(chunks=(1,)), planned, ClosedLoop(1)).block

    assert block.counters["one_token_answers"] == 1
    assert block.timings[0].tpot_s is None


def test_the_lag_of_a_targets_own_load_processes_counts():
    lags = [Lag(9.0, 9.0, 9.0, 1), Lag(0.5, 0.7, 0.9, 10)]

    class Sharded(Target):
        async def take_lag(self):
            return lags.pop(0)

    block = run(Sharded(), requests(0.0), ClosedLoop(1)).block

    assert block.counters["lag_mean_s"] == 0.5
    assert block.counters["lag_p99_s"] == 0.7
