"""Rounds in, the right kind of verdict out."""

import math

import pytest

from autotune.domain.verdict import (
    Continue,
    Inconclusive,
    NoneBeat,
    NotWorthIt,
    WorthIt,
)
from autotune.score.verdict import STANDARD, decide, paired_effect


# Twelve deviations whose every look (5, 8, 12) has a mean near zero.
WOBBLE = (0.9, -1.1, 0.2, 0.8, -0.8, 1.2, -0.9, -0.3, 0.6, -1.0, 1.1, -0.7)


def rounds_of(count, noise=0.01, **gains):
    """Rounds whose candidates gain what is given, each with its own wobble."""
    rounds = []
    for i in range(count):
        scores = {"baseline": 100.0 * (1 + 0.1 * i)}
        for shift, (name, gain) in enumerate(gains.items()):
            wobble = noise * WOBBLE[(i + 5 * shift) % 12 if shift else i]
            scores[name] = scores["baseline"] * (1 - gain) * math.exp(wobble)
        rounds.append(scores)
    return rounds


@pytest.mark.parametrize(("count", "ahead"), [(0, 5), (4, 5), (6, 8), (11, 12)])
def test_between_looks_nothing_is_decided_however_clear_the_gain(count, ahead):
    answer = decide(rounds_of(count, a=0.5), changes={"a": 1})

    assert answer == Continue(ahead, ("a",))


def test_a_clear_gain_is_worth_it_at_the_first_look():
    verdict = decide(rounds_of(5, a=0.18), changes={"a": 2})

    assert isinstance(verdict, WorthIt)
    assert verdict.winner.name == "a"
    assert verdict.winner.effect.gain_fraction == pytest.approx(0.18, abs=0.01)
    assert verdict.winner.effect.high < 1
    assert verdict.comparison.rounds_count == 5


def test_drift_that_a_round_shares_changes_nothing():
    steady = rounds_of(5, a=0.18)
    drifting = [{k: v * 3**i for k, v in r.items()} for i, r in enumerate(steady)]

    effects = [paired_effect(r, "a") for r in (steady, drifting)]

    assert effects[0].ratio == pytest.approx(effects[1].ratio)
    assert effects[0].low == pytest.approx(effects[1].low)


def test_a_sure_gain_under_two_percent_is_a_win_not_worth_a_change():
    verdict = decide(rounds_of(5, noise=0.001, a=0.01), changes={"a": 1})

    assert isinstance(verdict, NotWorthIt)


def test_a_small_win_waits_while_another_candidate_may_still_be_worth_it():
    rounds = [
        {"baseline": 100, "a": 99 * math.exp(0.001 * w), "b": 96 * math.exp(0.05 * w)}
        for w in WOBBLE[:5]
    ]

    answer = decide(rounds, changes={"a": 1, "b": 1})

    assert isinstance(answer, Continue)
    assert set(answer.candidates) == {"a", "b"}


def test_identical_scores_end_early_because_no_gain_is_left_to_find():
    verdict = decide([{"baseline": 7.0, "a": 7.0}] * 5, changes={"a": 1})

    assert isinstance(verdict, NoneBeat)
    assert verdict.excluded_fraction == STANDARD.worth_fraction
    assert verdict.comparison.noise_fraction == 0


def test_a_tie_known_only_to_five_percent_says_no_more_than_that():
    verdict = decide(rounds_of(12, noise=0.035, a=0.0), changes={"a": 1})

    assert isinstance(verdict, NoneBeat)
    assert verdict.excluded_fraction == STANDARD.excluded_fraction


def test_heavy_noise_is_inconclusive_and_states_the_noise():
    verdict = decide(rounds_of(12, noise=0.15, a=0.0), changes={"a": 1})

    assert isinstance(verdict, Inconclusive)
    # The wobbles' standard deviation is 0.89; one run has 1/sqrt(2) of a pair's.
    assert verdict.comparison.noise_fraction == pytest.approx(
        0.15 * 0.89 / 2**0.5, 0.05
    )


def test_hopeless_candidates_are_left_out_of_further_rounds():
    rounds = rounds_of(5, noise=0.02, good=0.01, bad=-0.3)

    assert decide(rounds, changes={"good": 1, "bad": 1}) == Continue(8, ("good",))


def test_a_candidate_missing_from_a_round_cannot_win():
    rounds = rounds_of(8, a=0.18, b=0.0)
    del rounds[6]["a"]

    answer = decide(rounds, changes={"a": 1, "b": 1})

    assert not isinstance(answer, WorthIt | NotWorthIt)


def test_a_tie_between_winners_goes_to_the_one_with_fewer_changes():
    rounds = rounds_of(5, big=0.101, small=0.1)

    verdict = decide(rounds, changes={"big": 6, "small": 1})

    assert verdict.winner.name == "small"


def test_a_separable_winner_keeps_its_win_however_many_its_changes():
    rounds = rounds_of(5, big=0.3, small=0.1)

    verdict = decide(rounds, changes={"big": 6, "small": 1})

    assert verdict.winner.name == "big"


def test_three_candidates_must_clear_a_higher_bar_than_one():
    alone = STANDARD.win_level(8, open_count=1)
    of_three = STANDARD.win_level(8, open_count=3)

    assert of_three < alone


@pytest.mark.parametrize("look", STANDARD.looks)
def test_the_interval_of_every_win_excludes_zero_at_every_look(look):
    levels = [STANDARD.win_level(look, open_count=m) for m in (1, 2, 3)]

    assert max(levels) < STANDARD.interval_level(look)


def test_metrics_are_described_and_never_decide():
    rounds = [{"baseline": 7.0, "a": 7.0}] * 5

    verdict = decide(rounds, changes={"a": 1}, metrics={"TPOT": rounds_of(5, a=0.5)})

    assert isinstance(verdict, NoneBeat)
    (candidate,) = verdict.comparison.candidates
    assert candidate.metrics["TPOT"].ratio == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("rounds", "changes"),
    [
        ([{"a": 1.0}], {"a": 1}),
        ([{"baseline": 0.0, "a": 1.0}], {"a": 1}),
        ([{"baseline": math.nan, "a": 1.0}], {"a": 1}),
        ([{"baseline": 1.0, "stranger": 1.0}], {"a": 1}),
        ([{"baseline": 1.0}] * 13, {"a": 1}),
        ([], {}),
        ([], {"a": 1, "b": 1, "c": 1, "d": 1}),
    ],
)
def test_malformed_rounds_are_refused(rounds, changes):
    with pytest.raises(ValueError, match=r"round|candidates"):
        decide(rounds, changes=changes)
