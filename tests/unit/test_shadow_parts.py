"""The parts a proposal is made of: points, surrogate, forecasts, shadow study."""

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob
from autotune.strategy import surrogate
from autotune.strategy.candidates import cover, every, neighbours
from autotune.strategy.coordinates import to_point, to_values
from autotune.strategy.facts import Fact
from autotune.strategy.feasibility import Correction, Forecast, correct
from autotune.strategy.ranking import log_expected_improvement
from autotune.strategy.tpe import ShadowStudy, distribution, penalty


KNOBS = (
    IntKnob("log", 512, 32768, log=True),
    IntKnob("stepped", 16, 1000, step=16),
    FloatKnob("real", 0.7, 0.98),
    FloatKnob("grid", 0.0, 1.0, step=0.3),
    ChoiceKnob("choice", (1, True, None, "1")),
)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.integers(0, 3))
def test_any_point_becomes_values_that_every_knob_accepts(numbers, choice):
    values = to_values(KNOBS, [*numbers, choice])

    assert all(k.accepts(values[k.name]) for k in KNOBS)


@given(st.integers(512, 32768), st.integers(0, 61), st.integers(0, 3))
def test_values_survive_the_way_to_a_point_and_back(log, steps, choice):
    values = {
        "log": log,
        "stepped": 16 + 16 * steps,
        "real": 0.75,
        "grid": 0.6,
        "choice": KNOBS[-1].choices[choice],
    }

    back = to_values(KNOBS, to_point(KNOBS, values))

    assert back["log"] == log
    assert back["stepped"] == values["stepped"]
    assert back["real"] == pytest.approx(0.75)
    assert back["choice"] is values["choice"]


def test_a_value_outside_its_range_lies_outside_the_unit_interval():
    assert to_point(KNOBS[2:3], {"real": 1.26}) == [pytest.approx(2.0)]
    assert to_point(KNOBS, {"log": 512}) is None


def test_a_space_is_counted_through_only_while_it_is_small():
    assert len(every((KNOBS[1], KNOBS[3], KNOBS[4]), limit=2048)) == 62 * 4 * 4
    assert every((KNOBS[1], KNOBS[3], KNOBS[4]), limit=100) is None
    assert every(KNOBS, limit=10**9) is None


def test_candidates_keep_to_the_bounds_and_differ_from_where_they_came():
    rng = np.random.default_rng(0)
    spread = cover(KNOBS, count=64, rng=rng)
    near = neighbours(KNOBS, spread[:3], count=200, reach=(0.01, 0.3), rng=rng)

    for points in (spread, near):
        assert points[:, :4].min() >= 0
        assert points[:, :4].max() <= 1
        assert set(points[:, 4]) == {0, 1, 2, 3}


def test_the_surrogate_finds_the_shape_and_doubts_what_it_has_not_seen():
    rng = np.random.default_rng(1)
    points = np.column_stack([rng.random((40, 2)), rng.integers(3, size=40)])
    truth = np.sin(4 * points[:, 0]) + (points[:, 2] == 1)
    fitted = surrogate.fit(points, truth, choices=np.array([False, False, True]))

    mean, deviation = fitted.predict(np.array([[0.4, 0.5, 1.0], [9.0, 9.0, 1.0]]))

    assert mean[0] == pytest.approx(np.sin(1.6) + 1, abs=0.1)
    assert deviation[1] > 4 * deviation[0]


def test_the_gradient_of_the_fit_is_that_of_its_cost():
    rng = np.random.default_rng(2)
    points, choices = rng.random((12, 3)), np.array([False, False, False])
    gaps = surrogate._gaps(points, points, choices)
    targets, (priors, _) = rng.normal(size=12), surrogate._priors(3)
    at = rng.normal(size=5) * 0.3

    _, gradient = surrogate._cost(at, gaps, targets, priors)

    for i, step in enumerate(np.eye(5) * 1e-5):
        above, _ = surrogate._cost(at + step, gaps, targets, priors)
        below, _ = surrogate._cost(at - step, gaps, targets, priors)
        assert gradient[i] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-6)


def test_expected_improvement_grows_with_a_better_mean_and_with_doubt():
    gain = log_expected_improvement(
        np.array([1.0, 0.5, 1.0]), np.array([0.1, 0.1, 0.5]), best=0.9
    )

    assert gain[1] > gain[0]
    assert gain[2] > gain[0]


def test_a_chance_follows_the_forecast_and_certainty_is_absolute():
    correction = Correction()

    assert correction.chance_to_fit(None) == 1.0
    assert correction.chance_to_fit(Forecast(0.0, error=2.0)) == pytest.approx(0.5)
    assert correction.chance_to_fit(Forecast(-2.0, error=2.0)) == pytest.approx(
        0.841, abs=1e-3
    )
    assert correction.chance_to_fit(Forecast(0.1)) == 0.0
    assert correction.chance_to_fit(Forecast(-0.1)) == 1.0


@pytest.mark.parametrize("bias", [-1.5, 1.5])
def test_launches_teach_how_far_a_guard_is_off(bias):
    rng = np.random.default_rng(3)
    forecasts = [Forecast(s, error=1.0) for s in rng.uniform(-4, 4, size=80)]
    fitted = [f.shortfall + bias + rng.normal() <= 0 for f in forecasts]

    learnt = correct(forecasts, fitted)

    assert learnt.bias == pytest.approx(bias, abs=0.6)
    assert correct([], []) == Correction()


def test_the_penalty_grows_with_the_violation_up_to_ten_thousand():
    assert penalty(0.0) == 1000
    assert penalty(0.5) == 1500
    assert penalty(50.0) == 10_000


def test_every_trial_of_the_shadow_sets_every_constraint():
    values = {"stepped": 16, "choice": True}
    knobs = (KNOBS[1], KNOBS[4])
    facts = [
        Fact(values, 1.0, {"memory": 0.0}),
        Fact({**values, "stepped": 32}, 5.0, {"quality": 2.0}),
        Fact({**values, "stepped": 17}, 5.0, {"memory": 0.0}),
    ]
    study = ShadowStudy(knobs, facts, constraints=("memory",), seed=0)
    trial, drawn = study.draw()
    study.refuse(trial, constraint="memory", violation=0.25)

    trials = study._study.trials

    assert [t.constraints for t in trials] == [
        {"memory": 0.0, "quality": 0.0},
        {"memory": 0.0, "quality": 2.0},
        {"memory": 0.25, "quality": 0.0},
    ]
    assert [t.value for t in trials] == [1.0, 3000.0, 1250.0]
    assert all(t.state is optuna.trial.TrialState.COMPLETE for t in trials)
    assert trials[0].params["choice"] is True
    assert all(k.accepts(drawn[k.name]) for k in knobs)


def test_a_range_that_its_step_does_not_divide_ends_on_the_grid():
    assert distribution(KNOBS[1]).high == 992
    assert distribution(KNOBS[3]).high == pytest.approx(0.9)
    assert distribution(KNOBS[4]).choices == (1, True, None, "1")
