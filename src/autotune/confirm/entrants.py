"""Finished trials in, who meets whom in the confirmation out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.domain.layout import collapse
from autotune.domain.outcome import Measured
from autotune.domain.settings import EngineSettings, Value
from autotune.domain.trial import Trial
from autotune.errors import AutotuneError
from autotune.score.verdict import BASELINE


TODAY = "today"
DEFAULTS = "vLLM's defaults"
# The reference where it is a candidate itself, against what runs today.
REFERENCE_AS_CANDIDATE = "defaults"
MOST_FINALISTS = 3
# Facts of a start rather than choices; they do not make a configuration another.
_NOT_A_CHOICE = ("kv_blocks", "kv_tokens")


@dataclass(frozen=True, slots=True)
class Member:
    """Something that is started in the rounds.

    Attributes:
        name: ``baseline``, ``today`` or ``trial 7``.
        settings: What is started.
        number: The trial's, where it is one.
    """

    name: str
    settings: EngineSettings
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """A question that the rounds are to answer.

    Attributes:
        reference: Member that the others must beat.
        against: What a sentence calls it.
        changes: Settings changed from the reference, by candidate.
    """

    reference: str
    against: str
    changes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LineUp:
    """Everyone who races, and what for; the first contest is the main one."""

    members: tuple[Member, ...]
    contests: tuple[Contest, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that is equal for equal line-ups."""
        return {
            "members": [
                {"name": m.name, "number": m.number, "settings": m.settings.to_json()}
                for m in self.members
            ],
            "contests": [
                {
                    "reference": c.reference,
                    "against": c.against,
                    "changes": dict(c.changes),
                }
                for c in self.contests
            ],
        }


def line_up(trials: Sequence[Trial], *, today: EngineSettings | None = None) -> LineUp:
    """The reference, the best distinct trials that were better, and today's settings.

    A line-up without contests means that no trial was better than the reference.
    With ``today`` the main question is what is gained over it, by the finalists or,
    where there are none, by the reference itself.

    Raises:
        AutotuneError: No trial is feasible.
    """
    reference = reference_trial(trials)
    better = finalists(trials, reference)
    first = Member(BASELINE, reference.settings, reference.number)
    chosen = [Member(f"trial {t.number}", t.settings, t.number) for t in better]
    changes = {
        m.name: len(changed(t, reference)) for m, t in zip(chosen, better, strict=True)
    }
    contests = [Contest(BASELINE, called(reference), changes)] if chosen else []
    members = [first, *chosen]
    if today is not None:
        candidates = chosen or [first]
        gains = {_candidate(m): _distance(m.settings, today) for m in candidates}
        contests.insert(0, Contest(TODAY, "what you run today", gains))
        members.append(Member(TODAY, today))
    return LineUp(tuple(members), tuple(contests))


def reference_trial(trials: Sequence[Trial]) -> Trial:
    """The defaults where they start; otherwise the first feasible trial.

    Raises:
        AutotuneError: No trial is feasible.
    """
    feasible = [t for t in trials if _feasible(t)]
    defaults = [t for t in feasible if t.role == "baseline"]
    numbered = sorted((t for t in feasible if t.number is not None), key=_number)
    for trial in [*defaults, *numbered]:
        return trial
    raise AutotuneError("no trial is feasible, so there is nothing to confirm")


def finalists(trials: Sequence[Trial], reference: Trial) -> list[Trial]:
    """The best feasible trials that scored better than the reference, each once."""
    better = [
        t
        for t in trials
        if t.role == "trial"
        and t.number is not None
        and _feasible(t)
        and _value(t) < 1.0
        and changed(t, reference)
    ]
    chosen: dict[frozenset[tuple[str, Value]], Trial] = {}
    for trial in sorted(better, key=_value):
        chosen.setdefault(_choice(trial), trial)
    return list(chosen.values())[:MOST_FINALISTS]


def changed(trial: Trial, reference: Trial) -> dict[str, Value]:
    """Turned knobs whose effective values are not the reference's."""
    ran, before = _ran(trial), _ran(reference)
    return {n: ran[n] for n in trial.changes if n in ran and ran[n] != before.get(n)}


def called(reference: Trial) -> str:
    """What a sentence calls the reference."""
    if reference.role == "baseline":
        return DEFAULTS
    return f"trial {reference.number} ({DEFAULTS} do not start here)"


def _candidate(member: Member) -> str:
    return member.name if member.name != BASELINE else REFERENCE_AS_CANDIDATE


def _distance(one: EngineSettings, other: EngineSettings) -> int:
    a, b = one.arguments, other.arguments
    return sum(a.get(n) != b.get(n) for n in {*a, *b})


def _ran(trial: Trial) -> dict[str, Value]:
    return {**trial.changes, **trial.effective, **collapse(trial.effective)}


def _choice(trial: Trial) -> frozenset[tuple[str, Value]]:
    ran = _ran(trial).items()
    return frozenset((k, v) for k, v in ran if k not in _NOT_A_CHOICE)


def _feasible(trial: Trial) -> bool:
    judged = trial.score is not None and trial.score.feasible
    return judged and isinstance(trial.outcome, Measured)


def _value(trial: Trial) -> float:
    return trial.score.value if trial.score else float("inf")


def _number(trial: Trial) -> int:
    return trial.number if trial.number is not None else -1
