"""Repair moves proposals until the rules hold, and never off a knob's grid."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob, Rule, SearchSpace
from autotune.spec import load_space, with_fixes
from autotune.strategy.tpe import distribution


SPACES = [
    load_space(str(path), device_count=4)
    for path in sorted(Path("search_spaces").glob("*.yaml"))
]


def space(*knobs, fixed=None, rules=()):
    return SearchSpace("s", fixed or {}, {}, knobs, tuple(rules))


def number_knobs(name):
    whole = st.builds(
        lambda low, width, step: IntKnob(name, low, low + width, step=step),
        st.integers(1, 50),
        st.integers(1, 100),
        st.integers(1, 7),
    )
    real = st.builds(
        lambda low, width, step: FloatKnob(name, low, round(low + width, 2), step=step),
        st.integers(0, 100).map(lambda n: n / 100),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.sampled_from([None, 0.1, 0.25]),
    )
    return whole | real


def values_of(knob):
    if isinstance(knob, ChoiceKnob):
        return st.sampled_from(knob.choices)
    if isinstance(knob, IntKnob):
        steps = (knob.high - knob.low) // knob.step
        return st.integers(0, steps).map(lambda i: knob.low + i * knob.step)
    if knob.step is None:
        return st.floats(knob.low, knob.high)
    steps = int((knob.high - knob.low) / knob.step + 1e-9)
    return st.integers(0, steps).map(lambda i: min(knob.low + i * knob.step, knob.high))


def optuna_holds(knob, value):
    known = distribution(knob)
    return known._contains(known.to_internal_repr(value))


@given(
    number_knobs("a"),
    st.sampled_from(["at_most", "at_least"]),
    st.floats(-10, 200),
    st.data(),
)
def test_a_repaired_number_lies_on_its_knobs_grid(knob, relation, bound, data):
    rules = [Rule("a", relation, bound)]

    repaired = space(knob, rules=rules).repair({"a": data.draw(values_of(knob))})

    assert knob.accepts(repaired["a"])
    assert optuna_holds(knob, repaired["a"])


@given(st.integers(1, 60), st.sampled_from(["at_most", "at_least"]), st.data())
def test_a_rule_that_some_value_fulfils_holds_after_repair(bound, relation, data):
    knob = IntKnob("a", 3, 60, step=4)
    rule = Rule("a", relation, bound)
    grid = range(3, 61, 4)
    fulfillable = any(g <= bound if relation == "at_most" else g >= bound for g in grid)
    one_rule = space(knob, rules=[rule])

    repaired = one_rule.repair({"a": data.draw(values_of(knob))})

    assert one_rule.holds(rule, repaired) == fulfillable


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 100))
def test_rules_that_lean_on_each_other_all_hold_in_any_order(a, b, c):
    knobs = [IntKnob(n, 1, 100) for n in "abc"]
    forward = [Rule("a", "at_most", "b"), Rule("b", "at_most", "c")]
    for rules in (forward, forward[::-1]):
        chained = space(*knobs, rules=rules)

        assert not chained.broken(chained.repair({"a": a, "b": b, "c": c}))


@pytest.mark.parametrize("shipped", SPACES, ids=lambda s: s.name)
@settings(max_examples=40)
@given(data=st.data())
def test_every_draw_of_a_shipped_space_is_repaired_to_keep_its_rules(shipped, data):
    context = data.draw(st.sampled_from([128, 640, 1536, 2304]))
    shipped = with_fixes(shipped, {"max_model_len": context})
    values = {k.name: data.draw(values_of(k)) for k in shipped.knobs}

    repaired = shipped.repair(values)

    assert not shipped.broken(repaired)
    assert all(k.accepts(repaired[k.name]) for k in shipped.knobs)
    assert all(optuna_holds(k, repaired[k.name]) for k in shipped.knobs)
    assert shipped.repair(repaired) == repaired


def test_values_that_keep_the_rules_are_left_alone():
    one = space(IntKnob("a", 1, 9), rules=[Rule("a", "at_most", 5)])

    assert one.repair({"a": 3}) == {"a": 3}


def test_the_top_of_a_grid_is_its_last_step_not_the_range_end():
    one = space(IntKnob("a", 1, 10, step=4), rules=[Rule("a", "at_least", 10)])

    assert one.repair({"a": 1}) == {"a": 9}


def test_a_stepped_real_number_is_repaired_onto_its_steps():
    knob = FloatKnob("a", 0.8, 0.98, step=0.01)
    one = space(knob, rules=[Rule("a", "at_most", 0.853)])

    assert one.repair({"a": 0.9})["a"] == pytest.approx(0.85)


def test_an_unfulfillable_rule_does_not_undo_an_earlier_repair():
    knob = ChoiceKnob("a", (0, 64, 256))
    rules = [Rule("a", "at_most", 100), Rule("a", "at_most", -1)]

    assert space(knob, rules=rules).repair({"a": 256}) == {"a": 64}


def test_a_rule_speaks_only_under_its_condition():
    rule = Rule("a", "at_least", 8, {"chunked": False})
    one = space(IntKnob("a", 1, 9), ChoiceKnob("chunked", (True, False)), rules=[rule])

    assert one.repair({"a": 2, "chunked": True})["a"] == 2
    assert one.repair({"a": 2, "chunked": False})["a"] == 8


def test_a_condition_on_a_setting_nobody_gave_is_not_met():
    rule = Rule("a", "at_least", 8, {"chunked": None})
    one = space(IntKnob("a", 1, 9), rules=[rule])

    assert one.repair({"a": 2}) == {"a": 2}


def test_fixed_settings_count_as_known_and_are_never_moved():
    rules = [Rule("a", "at_most", "f"), Rule("f", "at_most", "a")]
    one = space(IntKnob("a", 1, 9), fixed={"f": 4}, rules=rules)

    assert one.repair({"a": 9}) == {"a": 4}
    assert one.repair({"a": 2}) == {"a": 2}


def test_without_values_there_is_nothing_to_repair():
    one = space(IntKnob("a", 1, 9), rules=[Rule("a", "at_least", 5)])

    assert one.repair({}) == {}


def test_knobs_accept_their_own_types_only():
    assert not IntKnob("a", 0, 1).accepts(value=True)
    assert not FloatKnob("a", 0.0, 1.0).accepts(value=True)
    assert not ChoiceKnob("a", (1, 2)).accepts(value=True)
    assert not IntKnob("a", 0, 4, step=2).accepts(3)
    assert FloatKnob("a", 0.0, 1.0).accepts(1)
    assert not FloatKnob("a", 0.0, 1.0).accepts("x")
