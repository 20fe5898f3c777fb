"""What a run is worth by itself, and the prompts it is sent."""

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.confirm.measured import failure_of, own_metrics, own_score
from autotune.confirm.prompts import fresh, level_of, stored_workloads, with_levels
from autotune.confirm.rounds import running_order
from autotune.domain.outcome import Measured
from autotune.domain.timing import Block, LevelResult, RequestTiming
from autotune.domain.workload import (
    ClosedLoop,
    OpenLoop,
    RequestShape,
    Segment,
    Workload,
)
from autotune.errors import InputError
from autotune.load.plan import plan_block
from autotune.score.scoring import score


WORKLOAD = Workload(
    "w", prompt_tokens=8, output_tokens=3, requests=4, blocks=2, levels=(ClosedLoop(2),)
)
SECONDS = st.floats(0.001, 5.0)


def level(ttft_s, tpot_s, *, name="w", void=None, tokens=3):
    last_s = ttft_s + tpot_s * (tokens - 1)
    timing = RequestTiming(
        "r", name, "2 at once", 0, 0, 0.0, 0.0, ttft_s, last_s, (ttft_s, last_s),
        8, tokens, 0, "length",
    )  # fmt: skip
    block = Block(name, "2 at once", 0, datetime.now(UTC), 1.0, (timing,), void=void)
    return LevelResult(name, "2 at once", (block,))


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_the_ratio_of_two_own_scores_is_the_studys_score(a, b, c, d):
    one, other = (
        (level(a, b), level(c, d, name="v")),
        (level(d, c), level(b, a, name="v")),
    )

    ratio = own_score(one) / own_score(other)

    assert min(ratio, 100) == pytest.approx(score(Measured(one), other).value)


def test_one_token_answers_are_scored_by_their_first_token_alone():
    assert own_score([level(0.2, 0.0, tokens=1)]) == pytest.approx(200)
    assert "TPOT" not in own_metrics([level(0.2, 0.0, tokens=1)])


def test_a_level_that_cannot_be_believed_has_no_score():
    void = (level(0.1, 0.1), level(0.1, 0.1, void="disturbed"))

    assert failure_of(Measured(void)) == "no block can be believed"
    with pytest.raises(ValueError, match="may be believed"):
        own_score(void)


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 12))
def test_no_prompt_of_a_round_was_sent_before(seed, one, other):
    study = Workload("w", 8, 3, requests=4, blocks=2, levels=(), seed=seed)

    def prompts(workload):
        plans = [
            plan_block(workload, ClosedLoop(2), block=b, vocabulary=2000)
            for b in (0, 1)
        ]
        return {r.prompt_token_ids for plan in plans for r in plan}

    rounds = prompts(fresh(study, number=one))
    assert not rounds & prompts(study)
    assert one == other or not rounds & prompts(fresh(study, number=other))


class Recorded:
    """A source that notes which blocks are asked for."""

    context_tokens = 11

    def __init__(self):
        self.asked = []

    def shapes(self, count, *, block, draw):
        self.asked.append(block)
        return (RequestShape((Segment("a", 8),), 3),) * count


def test_recorded_traffic_goes_on_where_no_trial_was():
    source = Recorded()
    workload = Workload("w", 8, 3, requests=4, blocks=2, levels=(), source=source)

    later = fresh(workload, number=2)
    later.source.shapes(4, block=1, draw=random.Random(0))

    assert source.asked == [2001]
    assert later.context_tokens == 11


@given(st.builds(ClosedLoop, st.integers(1, 4096)) | st.builds(OpenLoop, SECONDS))
def test_a_level_is_found_by_its_label(found):
    assert level_of(found.label).label == found.label


def test_a_label_that_no_level_bears_is_refused():
    with pytest.raises(ValueError, match="no level"):
        level_of("85% of capacity")


def test_stored_workloads_are_the_ones_the_study_began_with():
    stored = {
        "name": "w",
        "prompt_tokens": 8,
        "output_tokens": 3,
        "requests": 4,
        "blocks": 2,
        "levels": ["85% of capacity"],
        "seed": 7,
        "unknown": 1,
    }

    (found,) = with_levels(
        stored_workloads({"workloads": [stored]}),
        [level(0.1, 0.1), level(1, 1, name="v")],
    )

    assert (found.name, found.seed, found.levels) == ("w", 7, (ClosedLoop(2),))


def test_recorded_traffic_is_not_in_the_study():
    with pytest.raises(InputError, match="recorded traffic"):
        stored_workloads({"workloads": [{"name": "w", "source": {"path": "x"}}]})


@given(st.integers(), st.integers(1, 12))
def test_everyone_starts_once_in_a_round(seed, number):
    members = ["baseline", "trial 1", "trial 2"]

    order = running_order(members, seed=seed, number=number)

    assert sorted(order) == sorted(members)
    assert order == running_order(members, seed=seed, number=number)
