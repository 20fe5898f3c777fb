"""Scores of finalists and baseline by round in, a verdict or the next look out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from autotune.domain.verdict import (
    CandidateResult,
    Comparison,
    Continue,
    Effect,
    Inconclusive,
    NoneBeat,
    NotWorthIt,
    Verdict,
    WorthIt,
)
from autotune.score.sequential import nominal_levels, t_quantile


BASELINE = "baseline"

Rounds = Sequence[Mapping[str, float]]

_MAX_CANDIDATES = 3
_CONFIDENCE = 0.95
# What is left out by the t intervals, both sides together, where a candidate ends at
# the first look, at a later one, at the last. Stopping early costs coverage, above all
# in studies that just missed a stop and go on to the end; with these the true effect
# lies inside in 93 to 97 % of studies (docs/statistics.md has the simulation). Each
# half exceeds the level of a win at that look, so the interval of a win excludes zero.
_LEFT_OUT_FIRST, _LEFT_OUT_LATER, _LEFT_OUT_LAST = 0.043, 0.033, 0.023


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rounds, how much error, and what counts as a gain.

    Attributes:
        looks: Numbers of rounds after which a decision may fall.
        family_alpha: Chance that any candidate wins when none is better.
        candidate_alpha: The most of it one candidate may spend; half of what a 95 %
            interval leaves out, so that the interval of a win excludes zero.
        give_up_alpha: Chance that a candidate worth a change is given up early.
        worth_fraction: The smallest gain worth a change.
        excluded_fraction: The gain that must be excluded after the last look to say
            that nothing beat the baseline, rather than that noise hides it.
    """

    looks: tuple[int, ...] = (5, 8, 12)
    family_alpha: float = 0.05
    candidate_alpha: float = 0.025
    give_up_alpha: float = 0.0125
    worth_fraction: float = 0.02
    excluded_fraction: float = 0.05

    def win_level(self, look: int, *, open_count: int) -> float:
        """Level of Holm's step at which ``open_count`` candidates are still open."""
        alpha = min(self.family_alpha / open_count, self.candidate_alpha)
        return nominal_levels(alpha, self.looks)[self.looks.index(look)]

    def interval_level(self, count: int) -> float:
        """What an interval over ``count`` rounds leaves out on each side."""
        if count <= self.looks[0]:
            return _LEFT_OUT_FIRST / 2
        return (_LEFT_OUT_LATER if count < self.looks[-1] else _LEFT_OUT_LAST) / 2

    def bound_level(self, look: int) -> float:
        """Level of the bound on the gain a candidate may still have.

        Before the last look it spends ``give_up_alpha``; at the last it is the end of
        the interval.
        """
        if look == self.looks[-1]:
            return self.interval_level(look)
        return nominal_levels(self.give_up_alpha, self.looks)[self.looks.index(look)]


STANDARD = Plan()


@dataclass(frozen=True, slots=True)
class _Sample:
    """Paired log ratios, summed up: mean and its standard error."""

    count: int
    mean: float
    error: float

    def t_against(self, log_ratio: float) -> float:
        """Standard errors by which the mean lies above ``log_ratio``."""
        distance = self.mean - log_ratio
        if self.error == 0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / self.error

    def reach(self, level: float) -> float:
        """Half the width of an interval that leaves out ``level`` on each side."""
        if self.count < 2:  # noqa: PLR2004 - one pair has no spread
            return math.inf
        return t_quantile(level, self.count - 1) * self.error


def decide(
    rounds: Rounds,
    *,
    changes: Mapping[str, int],
    metrics: Mapping[str, Rounds] | None = None,
    plan: Plan = STANDARD,
) -> Continue | Verdict:
    """Say what ``rounds`` allow to be said, or when to look again.

    Call it after every complete round; between looks it never decides. A candidate
    that is missing from a round is out from there on: it can no longer win, and the
    others are judged as strictly as if it were still in.

    Args:
        rounds: One mapping per complete round, from ``"baseline"`` and each
            finalist's name to a positive score; lower is better.
        changes: Settings changed from the baseline, by finalist; at most three.
        metrics: Rounds of other positive measures, by name, to describe.
        plan: Looks, errors and thresholds.

    Raises:
        ValueError: Rounds are malformed, too many, or name unknown candidates.
    """
    _check(rounds, changes, plan)
    count = len(rounds)
    if count not in plan.looks:
        ahead = min(look for look in plan.looks if look > count)
        return Continue(ahead, _running(rounds, changes))
    comparison = _compare(rounds, changes=changes, metrics=metrics or {}, plan=plan)
    return _settle(rounds, comparison, plan)


def paired_effect(
    rounds: Rounds, name: str, *, reference: str = BASELINE, plan: Plan = STANDARD
) -> Effect:
    """Effect of ``name`` on ``reference``: mean paired log ratio, with a t interval."""
    return _effect(_sample(rounds, name, reference), plan)


def _settle(rounds: Rounds, comparison: Comparison, plan: Plan) -> Continue | Verdict:
    """The decision at a look; the order of the questions is the policy."""
    count, last = comparison.rounds_count, comparison.rounds_count == plan.looks[-1]
    running = [c for c in comparison.candidates if c.rounds_count == count]
    hopeful = [c for c in running if c.best_gain_fraction >= plan.worth_fraction]
    wins = [c for c in running if c.is_win]
    worth = [c for c in wins if c.effect.gain_fraction >= plan.worth_fraction]
    if worth:
        return WorthIt(_fewest_changes(rounds, worth), comparison)
    if hopeful and not last:
        ahead = plan.looks[plan.looks.index(count) + 1]
        return Continue(ahead, tuple(c.name for c in running if c in [*hopeful, *wins]))
    if wins:
        return NotWorthIt(_fewest_changes(rounds, wins), comparison)
    if not hopeful:
        return NoneBeat(comparison, plan.worth_fraction)
    if all(c.best_gain_fraction < plan.excluded_fraction for c in hopeful):
        return NoneBeat(comparison, plan.excluded_fraction)
    return Inconclusive(comparison)


def _fewest_changes(rounds: Rounds, wins: Sequence[CandidateResult]) -> CandidateResult:
    """The lowest score, or what ties with it and changes less."""
    best = wins[0]
    tied = [
        c for c in wins if paired_effect(rounds, c.name, reference=best.name).is_tie
    ]
    return min(tied, key=lambda c: (c.changes_count, c.effect.ratio))


def _compare(
    rounds: Rounds,
    *,
    changes: Mapping[str, int],
    metrics: Mapping[str, Rounds],
    plan: Plan,
) -> Comparison:
    samples = {
        name: _sample(rounds, name, BASELINE) for name in changes if name in rounds[0]
    }
    winners = _winners(samples, len(rounds), family=len(changes), plan=plan)
    results = (
        CandidateResult(
            name=name,
            changes_count=changes[name],
            rounds_count=sample.count,
            effect=_effect(sample, plan),
            is_win=name in winners,
            best_gain_fraction=_best_gain(sample, plan),
            metrics=_describe(metrics, name),
        )
        for name, sample in samples.items()
    )
    return Comparison(
        candidates=tuple(sorted(results, key=lambda c: c.effect.ratio)),
        rounds_count=len(rounds),
        noise_fraction=_noise(samples.values()),
        worth_fraction=plan.worth_fraction,
    )


def _winners(
    samples: Mapping[str, _Sample], look: int, *, family: int, plan: Plan
) -> frozenset[str]:
    """Holm's step-down over ``family`` candidates at this look's levels."""
    running = [name for name, s in samples.items() if s.count == look]
    ordered = sorted(running, key=lambda name: samples[name].t_against(0.0))

    def passes(step: tuple[int, str]) -> bool:
        level = plan.win_level(look, open_count=family - step[0])
        return -samples[step[1]].t_against(0.0) >= t_quantile(level, look - 1)

    return frozenset(name for _, name in takewhile(passes, enumerate(ordered)))


def _describe(metrics: Mapping[str, Rounds], name: str) -> dict[str, Effect]:
    return {
        metric: paired_effect(rounds, name)
        for metric, rounds in metrics.items()
        if rounds and name in rounds[0]
    }


def _best_gain(sample: _Sample, plan: Plan) -> float:
    """The gain that ``sample`` leaves possible at the last look it was part of."""
    passed = [look for look in plan.looks if look <= sample.count]
    if not passed:
        return 1.0
    reach = sample.reach(plan.bound_level(passed[-1]))
    return 1 - math.exp(sample.mean - reach)


def _sample(rounds: Rounds, name: str, reference: str) -> _Sample:
    """Sum up the rounds of ``name`` before the first it is missing from."""
    together = takewhile(lambda r: name in r and reference in r, rounds)
    ratios = [math.log(r[name] / r[reference]) for r in together]
    count = len(ratios)
    mean = math.fsum(ratios) / count
    if count < 2:  # noqa: PLR2004 - one pair has no spread
        return _Sample(count, mean, math.inf)
    variance = math.fsum((x - mean) ** 2 for x in ratios) / (count - 1)
    return _Sample(count, mean, math.sqrt(variance / count))


def _effect(sample: _Sample, plan: Plan) -> Effect:
    reach = sample.reach(plan.interval_level(sample.count))
    low, high = sample.mean - reach, sample.mean + reach
    ends = (0.0, math.inf) if math.isinf(reach) else (math.exp(low), math.exp(high))
    return Effect(math.exp(sample.mean), *ends, _CONFIDENCE)


def _noise(samples: Iterable[_Sample]) -> float:
    """Spread of one run's log score: of the pairs, pooled, over the root of two."""
    pairs = [s for s in samples if math.isfinite(s.error)]
    freedom = sum(s.count - 1 for s in pairs)
    if not freedom:
        return math.nan
    squares = math.fsum((s.count - 1) * s.count * s.error**2 for s in pairs)
    return math.sqrt(squares / freedom / 2)


def _running(rounds: Rounds, changes: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(name for name in changes if all(name in r for r in rounds))


def _check(rounds: Rounds, changes: Mapping[str, int], plan: Plan) -> None:
    if not 1 <= len(changes) <= _MAX_CANDIDATES or BASELINE in changes:
        raise ValueError(f"one to three candidates are judged, not {list(changes)}")
    if len(rounds) > plan.looks[-1]:
        raise ValueError(f"{len(rounds)} rounds, but the plan ends at {plan.looks[-1]}")
    for number, scores in enumerate(rounds, start=1):
        unknown = scores.keys() - changes.keys() - {BASELINE}
        bad = [name for name, s in scores.items() if not 0 < s < math.inf]
        if BASELINE not in scores or unknown or bad:
            raise ValueError(
                f"round {number} needs a baseline, known candidates and positive "
                f"scores, not {dict(scores)}"
            )
