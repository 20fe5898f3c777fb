"""Proposals are new, repaired, guarded, seeded and good."""

import math

import numpy as np
import pytest

from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob, Rule, SearchSpace
from autotune.strategy.facts import Fact
from autotune.strategy.feasibility import Forecast
from autotune.strategy.shadow import Exhausted, ShadowSampler, values_key


KINDS = ("gp", "tpe", "random")
SPACE = SearchSpace(
    name="test",
    fixed={"max_model_len": 640},
    environment={},
    knobs=(
        IntKnob("tokens", 512, 8192, log=True),
        IntKnob("sequences", 16, 1024, step=16),
        FloatKnob("utilization", 0.7, 0.95),
        ChoiceKnob("cache", (True, False, None, "auto", 1)),
    ),
    rules=(Rule("tokens", "at_least", "sequences"),),
)
SMALL = SearchSpace("small", {}, {}, (ChoiceKnob("a", (1, True)), IntKnob("b", 0, 2)))


def score(values):
    distance = (math.log2(values["tokens"]) - 11) ** 2 + (values["cache"] is not None)
    return 1.0 + distance + abs(values["utilization"] - 0.8)


def search(sampler, *, count, fits=lambda _: True):
    facts = []
    for number in range(count):
        values = sampler.propose(facts, number=number)
        violation = 0.0 if fits(values) else 0.5
        facts.append(Fact(values, score(values), {"memory": violation}))
    return facts


@pytest.mark.parametrize("kind", KINDS)
def test_every_proposal_is_on_its_knobs_and_obeys_the_rules(kind):
    facts = search(ShadowSampler(SPACE, seed=1, kind=kind), count=14)

    for fact in facts:
        assert all(k.accepts(fact.values[k.name]) for k in SPACE.knobs)
        assert fact.values["tokens"] >= fact.values["sequences"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_facts_seed_and_number_give_the_same_proposal(kind):
    facts = search(ShadowSampler(SPACE, seed=1, kind=kind), count=8)
    first, again, other = (
        ShadowSampler(SPACE, seed=1, kind=kind).propose(facts, number=n)
        for n in (8, 8, 9)
    )

    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_space_is_tried_whole_without_repeats_and_then_said_to_be_exhausted(
    kind,
):
    sampler = ShadowSampler(SMALL, seed=3, kind=kind)
    facts = []
    for number in range(6):
        values = sampler.propose(facts, number=number)
        facts.append(Fact(values, 1.0 + number, {"memory": 0.0}))

    assert len({values_key(f.values) for f in facts}) == 6
    with pytest.raises(Exhausted, match="small"):
        sampler.propose(facts, number=6)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_to_be_avoided_or_is_running_is_not_proposed(kind):
    sampler = ShadowSampler(SMALL, seed=0, kind=kind)
    avoid = {values_key({"a": 1, "b": b}) for b in range(3)}
    pending = [{"a": True, "b": 0}, {"a": True, "b": 1}]

    values = sampler.propose([], number=0, avoid=avoid, pending=pending)

    assert values == {"a": True, "b": 2}
    assert values["a"] is True


def test_two_configurations_with_one_effective_key_are_the_same():
    sampler = ShadowSampler(SMALL, seed=0, key=lambda v: v["b"])
    facts = [Fact({"a": 1, "b": 0, "other": 9}, 1.0, {})]

    seen = {sampler.propose(facts, number=n, avoid={2})["b"] for n in range(5)}

    assert seen == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_guard_is_sure_about_is_never_launched(kind):
    def guard(values):
        return Forecast(values["utilization"] - 0.85)

    facts = search(ShadowSampler(SPACE, seed=5, kind=kind, guard=guard), count=14)

    assert max(f.values["utilization"] for f in facts) <= 0.85


def test_a_guard_that_doubts_everything_still_lets_the_likeliest_through():
    def guard(values):
        return Forecast(1.0 + values["utilization"], error=1.0)

    facts = [Fact({**_middle(), "utilization": u}, 2.0, {}) for u in (0.8, 0.9)]
    values = ShadowSampler(SPACE, seed=0, guard=guard).propose(facts, number=2)

    assert values["utilization"] < 0.75


def test_a_guard_that_refuses_everything_for_certain_exhausts_the_space():
    sampler = ShadowSampler(SMALL, seed=0, guard=lambda _: Forecast(1.0))

    with pytest.raises(Exhausted):
        sampler.propose([], number=0)


@pytest.mark.parametrize("kind", KINDS)
def test_facts_outside_the_ranges_or_without_a_knob_are_borne(kind):
    baseline = {"tokens": 65536, "sequences": 5, "utilization": 0.99, "cache": "odd"}
    facts = [Fact(baseline, 1.0, {}), Fact({"tokens": 2048}, 1.1, {"memory": 0.0})]
    facts += search(ShadowSampler(SPACE, seed=2, kind=kind), count=7)

    values = ShadowSampler(SPACE, seed=2, kind=kind).propose(facts, number=9)

    assert all(k.accepts(values[k.name]) for k in SPACE.knobs)


@pytest.mark.parametrize("kind", ["gp", "tpe"])
def test_search_goes_on_when_nothing_was_feasible_yet(kind):
    facts = search(
        ShadowSampler(SPACE, seed=4, kind=kind), count=10, fits=lambda _: False
    )

    assert len({values_key(f.values) for f in facts}) == 10


def test_the_ranked_search_beats_even_draws_on_the_same_budget():
    best = {
        kind: np.mean(
            [
                min(
                    f.score
                    for f in search(ShadowSampler(SPACE, seed=s, kind=kind), count=16)
                )
                for s in (11, 12)
            ]
        )
        for kind in ("gp", "random")
    }

    assert best["gp"] < best["random"]


def test_without_a_guard_the_boundary_is_learnt_from_launches_that_died():
    facts = search(
        ShadowSampler(SPACE, seed=6), count=20, fits=lambda v: v["utilization"] < 0.78
    )

    died = [f.violation > 0 for f in facts]
    assert sum(died[10:]) < sum(died[:10])


def test_an_expensive_candidate_gives_way_to_a_cheap_one():
    facts = search(ShadowSampler(SPACE, seed=7), count=8)
    sampler = ShadowSampler(
        SPACE, seed=7, cost_s=lambda v: 1e30 if v["cache"] is not False else 1.0
    )

    assert sampler.propose(facts, number=8)["cache"] is False


def _middle():
    return {"tokens": 2048, "sequences": 512, "utilization": 0.8, "cache": True}
