"""Verdicts in, sentences out."""

import pytest

from autotune.domain.verdict import (
    CandidateResult,
    Comparison,
    Effect,
    Inconclusive,
    NoneBeat,
    NotWorthIt,
    WorthIt,
)
from autotune.score.sentence import render_effect, render_sentence


def effect(percent, low, high):
    return Effect(1 + percent / 100, 1 + low / 100, 1 + high / 100, 0.95)


def candidate(score, **metrics):
    named = {name.replace("_", " "): e for name, e in metrics.items()}
    return CandidateResult("a", 1, 8, score, True, 0.1, named)  # noqa: FBT003 - a value


def comparison(*candidates, rounds_count=8, noise=0.02):
    return Comparison(candidates, rounds_count, noise, 0.02)


def test_a_win_worth_it_is_said_with_its_interval_and_metrics():
    winner = candidate(
        effect(-18, -22, -13),
        p95_TTFT=effect(-24, -30, -17),
        TPOT=effect(-11, -14, -8),
        throughput=effect(0.4, -1, 2),
    )

    assert render_sentence(WorthIt(winner, comparison(winner))) == (
        "score \u221218 % [\u221222, \u221213] against vLLM's defaults, worth it; "
        "p95 TTFT \u221224 %, TPOT \u221211 %, throughput tie (8 rounds)"
    )


def test_a_small_win_is_called_not_worth_a_change():
    winner = candidate(effect(-1.4, -1.9, -0.9))

    assert render_sentence(NotWorthIt(winner, comparison(winner))) == (
        "score \u22121.4 % [\u22121.9, \u22120.9] against vLLM's defaults, "
        "a win, but under 2 %: not worth a change (8 rounds)"
    )


def test_no_win_says_which_gain_is_ruled_out():
    assert render_sentence(NoneBeat(comparison(), 0.02)) == (
        "no setting beat vLLM's defaults; a gain of 2 % or more is ruled out (8 rounds)"
    )


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (0.09, "machine noise 9 %"),
        (0.013, "machine noise 1.3 %"),
        (float("nan"), "machine noise unknown"),
    ],
)
def test_an_inconclusive_verdict_states_the_machine_noise(noise, said):
    verdict = Inconclusive(comparison(rounds_count=12, noise=noise))

    assert render_sentence(verdict) == f"inconclusive after 12 rounds ({said})"


def test_the_baseline_can_be_named():
    verdict = NoneBeat(comparison(), 0.05)

    assert "no setting beat what runs today;" in render_sentence(
        verdict, against="what runs today"
    )


def test_an_end_close_to_zero_is_not_printed_as_zero():
    assert render_effect(effect(-12, -24, -0.3)) == (
        "\u221212.0 % [\u221224.0, \u22120.3]"
    )
    assert render_effect(effect(-2.5, -4.9, -0.04)) == (
        "\u22122.50 % [\u22124.90, \u22120.04]"
    )
