"""Runs in; complete rounds, who races next, and what each contest has come to out.

Pure, so that a confirmation that was cut off goes on from what was stored.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.confirm.entrants import REFERENCE_AS_CANDIDATE, Contest, LineUp
from autotune.domain.verdict import Continue, Verdict
from autotune.score.verdict import BASELINE, Plan, decide
from autotune.store.confirmations import Run


Round = Mapping[str, Run]


@dataclass(frozen=True, slots=True)
class AllLost:
    """Every candidate failed; nothing can be said of any."""


Settled = Verdict | AllLost


def running_order(members: Sequence[str], *, seed: int, number: int) -> list[str]:
    """The members of round ``number`` in the order they are started."""
    order = list(members)
    random.Random(f"{seed}/{number}").shuffle(order)  # noqa: S311 - repeatable
    return order


def complete_rounds(runs: Sequence[Run], line_up: LineUp, plan: Plan) -> list[Round]:
    """Rounds in which everyone due was started in one and the same epoch.

    What a dead process left of a round is not mixed with a later one's: another
    epoch may be another day.
    """
    rounds: list[Round] = []
    while due := racers(rounds, line_up, plan):
        found = _round(runs, number=len(rounds) + 1, due=due)
        if found is None:
            break
        rounds.append(found)
    return rounds


def racers(rounds: Sequence[Round], line_up: LineUp, plan: Plan) -> tuple[str, ...]:
    """Who is started in the next round, in the line-up's order; nobody at the end."""
    wanted: set[str] = set()
    for contest in line_up.contests:
        state = settle(rounds, contest, plan)
        if isinstance(state, Continue):
            wanted |= {contest.reference, *map(_member, state.candidates)}
    return tuple(m.name for m in line_up.members if m.name in wanted)


def settle(rounds: Sequence[Round], contest: Contest, plan: Plan) -> Settled | Continue:
    """What ``rounds`` allow to be said of ``contest``; the first word stands.

    A candidate that left the contest may still race for another; what it does there
    counts here no more.
    """
    state = Continue(plan.looks[0], tuple(contest.changes))
    scores: list[dict[str, float]] = []
    for index, played in enumerate(rounds):
        score = _scores(played, contest.reference, state.candidates)
        if BASELINE not in score:
            break
        if len(score) == 1:
            return AllLost()
        scores.append(score)
        measures = _measures(rounds[: index + 1], contest, scores)
        found = decide(scores, changes=contest.changes, metrics=measures, plan=plan)
        if not isinstance(found, Continue):
            return found
        state = found
    return state


def _round(runs: Sequence[Run], *, number: int, due: Sequence[str]) -> Round | None:
    by_epoch: dict[int, dict[str, Run]] = {}
    for run in runs:
        if run.round_number == number:
            by_epoch.setdefault(run.epoch, {})[run.member] = run
    whole = [r for r in by_epoch.values() if all(name in r for name in due)]
    return {name: whole[0][name] for name in due} if whole else None


def _member(candidate: str) -> str:
    return BASELINE if candidate == REFERENCE_AS_CANDIDATE else candidate


def _scores(
    played: Round, reference: str, candidates: Sequence[str]
) -> dict[str, float]:
    """Scores by candidate, the reference's as the baseline's."""
    names = {BASELINE: reference} | {c: _member(c) for c in candidates}
    return {
        called: run.score
        for called, name in names.items()
        if (run := played.get(name)) is not None and run.score is not None
    }


def _measures(
    rounds: Sequence[Round], contest: Contest, scores: Sequence[Mapping[str, float]]
) -> dict[str, list[dict[str, float]]]:
    """Rounds of each measure that every run has, for who was scored in them."""
    runs = [
        {
            called: played[contest.reference if called == BASELINE else _member(called)]
            for called in score
        }
        for played, score in zip(rounds, scores, strict=True)
    ]
    everyone = [run for played in runs for run in played.values()]
    names = [n for n in everyone[0].metrics if all(n in r.metrics for r in everyone)]
    return {
        n: [{called: r.metrics[n] for called, r in played.items()} for played in runs]
        for n in names
    }
