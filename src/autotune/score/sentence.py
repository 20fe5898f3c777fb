"""A verdict in, the one sentence a person reads out."""

from __future__ import annotations

import math
from typing import assert_never

from autotune.domain.verdict import (
    CandidateResult,
    Comparison,
    Effect,
    Inconclusive,
    NoneBeat,
    NotWorthIt,
    Verdict,
    WorthIt,
)


def render_sentence(verdict: Verdict, *, against: str = "vLLM's defaults") -> str:
    """Say ``verdict`` in one line; ``against`` names the baseline."""
    comparison = verdict.comparison
    rounds = _rounds(comparison)
    worth = f"{100 * comparison.worth_fraction:g} %"
    match verdict:
        case WorthIt(winner):
            head = f"{_score(winner)} against {against}, worth it"
            return f"{'; '.join([head, *_metrics(winner)])} ({rounds})"
        case NotWorthIt(winner):
            claim = f"a win, but under {worth}: not worth a change"
            return f"{_score(winner)} against {against}, {claim} ({rounds})"
        case NoneBeat(_, excluded_fraction):
            excluded = f"a gain of {100 * excluded_fraction:g} % or more is ruled out"
            return f"no setting beat {against}; {excluded} ({rounds})"
        case Inconclusive():
            return f"inconclusive after {rounds} ({_noise(comparison)})"
        case _:
            assert_never(verdict)


def render_effect(effect: Effect) -> str:
    """An effect with its interval, in per cent: ``+18 % [+13, +22]``."""
    values = effect.percent
    digits = _digits(values)
    estimate, low, high = (_signed(value, digits) for value in values)
    return f"{estimate} % [{low}, {high}]"


def _score(winner: CandidateResult) -> str:
    return f"score {render_effect(winner.effect)}"


def _metrics(winner: CandidateResult) -> list[str]:
    """All descriptive effects as one clause, or no clause."""
    clause = ", ".join(f"{name} {_change(e)}" for name, e in winner.metrics.items())
    return [clause] if clause else []


def _change(effect: Effect) -> str:
    if effect.is_tie:
        return "tie"
    percent = effect.percent[0]
    return f"{_signed(percent, _digits((percent,)))} %"


def _rounds(comparison: Comparison) -> str:
    count = comparison.rounds_count
    return f"{count} round{'' if count == 1 else 's'}"


def _noise(comparison: Comparison) -> str:
    if not comparison.noise_is_known:
        return "machine noise unknown"
    percent = 100 * comparison.noise_fraction
    return f"machine noise {percent:.{_digits((percent,), whole_from=3)}f} %"


def _digits(percents: tuple[float, ...], *, whole_from: float = 10) -> int:
    """Decimals to print: none for large changes, more where an end would read 0.

    An interval that ends at -0.3 must not be printed as ending at zero.
    """
    fewest = 0 if max(abs(p) for p in percents) >= whole_from else 1
    for digits in (fewest, fewest + 1):
        if all(p == 0 or round(p, digits) for p in percents):
            return digits
    return fewest + 2


def _signed(percent: float, digits: int) -> str:
    """A change with its sign, the minus being the typographic one."""
    if math.isinf(percent):
        return "+∞"
    return f"{percent:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
