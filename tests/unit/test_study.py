"""Optuna's side of the file holds what was launched, and nothing else."""

import optuna
import pytest

from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob, SearchSpace
from autotune.domain.trial import Score
from autotune.errors import InputError, StoreUnavailable
from autotune.strategy.study import OptunaStudy


KNOBS = (
    IntKnob("seqs", 1, 64, log=True),
    IntKnob("odd", 1, 10, step=4),
    FloatKnob("share", 0.5, 0.98, step=0.1),
    ChoiceKnob("chunked", (True, False)),
)
GOOD = {"memory": 0.0, "settings": 0.0}


def make(tmp_path, *knobs, name="s"):
    space = SearchSpace("x", {}, {}, knobs or KNOBS)
    return OptunaStudy(f"sqlite:///{tmp_path / 'o.db'}", name=name, space=space)


@pytest.fixture
def study(tmp_path):
    made = make(tmp_path)
    yield made
    made.release()


def test_a_trial_has_exactly_the_values_it_was_begun_with(study):
    values = {"seqs": 7, "odd": 9, "share": 0.6, "chunked": False}

    study.tell(study.begin(values), Score(0.5, GOOD), attributes={"role": "trial"})

    (fact,) = study.facts()
    assert fact.values == values
    assert (fact.score, fact.constraints) == (0.5, GOOD)


def test_values_outside_their_range_are_left_out(study):
    number = study.begin({"seqs": 1024, "odd": 2, "share": 0.6, "strange": 1})
    study.tell(number, Score(1.0, GOOD), attributes={})

    assert study.facts()[0].values == {"share": 0.6}


def test_a_trial_without_values_can_be_told(study):
    study.tell(study.begin({}), Score(1.0, GOOD), attributes={})

    assert study.facts()[0].values == {}


def test_the_best_trial_is_feasible_however_low_another_scores(study):
    for value, violation in ((1.0, 0.0), (0.1, 0.5), (0.8, 0.0), (0.9, 0.0)):
        score = Score(value, GOOD | {"memory": violation})
        study.tell(study.begin({"seqs": 2}), score, attributes={})

    assert study.best_number() == 2


def test_without_a_feasible_trial_there_is_no_best(study):
    assert study.best_number() is None
    score = Score(1000.0, GOOD | {"memory": 1.0})
    study.tell(study.begin({"seqs": 2}), score, attributes={})

    assert study.best_number() is None


def test_abandoned_trials_count_for_nothing_but_their_number(study):
    study.abandon(study.begin({"seqs": 2}))

    assert study.finished_count() == 0
    assert study.facts() == ()
    assert study.next_number() == 1
    assert study.running_numbers() == ()


def test_a_begun_trial_is_running_until_it_is_told(study):
    number = study.begin({"seqs": 2})

    assert study.running_numbers() == (number,)
    study.tell(number, Score(1.0, GOOD), attributes={})
    assert study.running_numbers() == ()
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        study.tell(number, Score(2.0, GOOD), attributes={"role": "trial"})


def test_a_trial_half_told_by_a_dead_run_can_be_told_whole(study):
    number = study.begin({"seqs": 2})
    study._trial(number).set_constraint("memory", 0.0)

    study.tell(number, Score(1.0, GOOD), attributes={"role": "trial"})

    assert study.facts()[0].constraints == GOOD


def test_a_reopened_study_goes_on_where_it_was(study, tmp_path):
    study.tell(study.begin({"seqs": 2}), Score(1.0, GOOD), attributes={})
    again = make(tmp_path)

    assert again.finished_count() == 1
    assert again.begin({"seqs": 3}) == 1
    again.release()


def test_choices_that_changed_within_a_study_are_bad_input(study, tmp_path):
    study.begin({"chunked": True})
    other = make(tmp_path, ChoiceKnob("chunked", (True, False, None)))

    with pytest.raises(InputError, match="does not fit study 's'"):
        other.begin({"chunked": True})
    other.release()


def test_what_was_queued_and_never_begun_is_taken_back(study):
    study._study.enqueue_trial({"seqs": 60})
    study._study.enqueue_trial({"seqs": 61})

    study.drop_queued()

    number = study.begin({"seqs": 2})
    study.tell(number, Score(1.0, GOOD), attributes={})
    assert [f.values for f in study.facts()] == [{"seqs": 2}]


@pytest.mark.parametrize("url", ["nonsense", "sqlite:////no/such/folder/x.db"])
def test_a_storage_that_cannot_be_opened_is_named(url):
    with pytest.raises(StoreUnavailable, match="--storage"):
        OptunaStudy(url, name="s", space=SearchSpace("x", {}, {}, KNOBS))
