"""A study's finalists against its baseline in, a verdict and its sentence out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from autotune.confirm.entrants import (
    LineUp,
    Member,
    called,
    line_up,
    reference_trial,
)
from autotune.confirm.measured import failure_of, own_metrics, own_score
from autotune.confirm.prompts import fresh, with_levels
from autotune.confirm.rounds import (
    AllLost,
    Settled,
    complete_rounds,
    racers,
    running_order,
    settle,
)
from autotune.domain.outcome import Measured, Outcome
from autotune.domain.settings import EngineSettings
from autotune.domain.timing import LevelResult
from autotune.domain.verdict import Continue, Inconclusive, WorthIt
from autotune.errors import HostUnfit, InputError
from autotune.launch import Launched, Launcher
from autotune.score.sentence import render_sentence
from autotune.score.verdict import BASELINE, STANDARD, Plan
from autotune.store.confirmations import ConfirmationStore, Run, StoredConfirmation
from autotune.store.facts import FactStore


__all__ = ["Confirmed", "Confirmer", "Progress", "standard_plan"]

# What must be equal for two runs to be one confirmation.
SAME_MACHINE = ("host", "device", "device_count", "versions")
NOT_CONFIRMED, INCONCLUSIVE = 1, 4


class Progress(Protocol):
    """Told what is being run, and what came of it."""

    def phase(self, number: int, member: str, phase: str) -> None:
        """``member`` of round ``number`` has got to ``phase``."""
        ...

    def ran(self, run: Run) -> None:
        """A run is over and stored."""
        ...


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What may be said at the end of a study.

    Attributes:
        sentences: One per question, the main one first.
        settled: What each question came to, by reference member.
        winner: Number of the trial worth serving; None to stay with the reference.
        rounds_count: Complete rounds it rests on.
        exit_code: 0 decided, 1 not confirmed, 4 inconclusive.
    """

    sentences: tuple[str, ...]
    settled: Mapping[str, Settled]
    winner: int | None
    rounds_count: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """A confirmation and where it is stored."""

    store: ConfirmationStore
    key: int
    lined: LineUp

    def runs(self) -> tuple[Run, ...]:
        return self.store.runs(self.key)

    def member(self, name: str) -> Member:
        return next(m for m in self.lined.members if m.name == name)

    def is_reference(self, name: str) -> bool:
        return any(c.reference == name for c in self.lined.contests)

    def record(self, launch: int, launched: Launched, run: Run | None) -> None:
        self.store.record(
            launch,
            outcome=launched.outcome,
            effective=launched.effective,
            phases_s=launched.phases_s,
            confirmation=self.key,
            run=run,
        )


@dataclass(frozen=True, slots=True)
class Confirmer:
    """The parts a confirmation runs on; ``run`` is the whole of it.

    Attributes:
        study: Its name.
        store: Where its facts are.
        launcher: Starts members; its workloads are the study's.
        log_folder: Where each launch's whole log goes.
        machine: As the study's epochs have it.
        progress: Told about every run.
        seed: Decides the order within rounds.
        plan: Looks, errors and thresholds.
        today: What the user runs today, measured beside.
    """

    study: str
    store: FactStore
    launcher: Launcher
    log_folder: Path
    machine: Mapping[str, Any]
    progress: Progress
    seed: int = 0
    plan: Plan = STANDARD
    today: EngineSettings | None = None

    def run(self, *, again: bool = False) -> Confirmed:
        """Run rounds until every question is settled, and say what was found.

        An unfinished confirmation of the same finalists on this machine goes on; a
        finished one is said again, unless ``again`` asks for new rounds.

        Raises:
            AutotuneError: No trial is feasible.
            InputError: Another process is working on this study.
            HostUnfit: The reference failed twice in a round; all rounds are saved.
        """
        self._recover()
        trials = self.store.trials(self.study)
        lined = line_up(trials, today=self.today)
        reference = reference_trial(trials)
        if not lined.contests:
            return _none_better(called(reference), len(trials))
        confirmations = ConfirmationStore(self.store)
        key = self._begin(confirmations, lined, again=again)
        kept = _Kept(confirmations, key, lined)
        return self._conclude(kept, self._race(kept, _levels(reference.outcome)))

    def _recover(self) -> None:
        """Drop what a dead run was cut off in; its complete rounds stay."""
        launches = self.store.running_launches(self.study)
        if any(r.owner_alive for r in launches):
            raise InputError(
                f"study {self.study!r} is being worked on by another process; wait "
                "for it to end"
            )
        for launch in launches:
            self.store.abandon_launch(launch.launch_id)

    def _begin(self, kept: ConfirmationStore, lined: LineUp, *, again: bool) -> int:
        """The confirmation to go on with, or a new one."""
        plan = lined.to_json() | {"looks": list(self.plan.looks), "seed": self.seed}
        for found in reversed(kept.of_study(self.study)):
            if self._continues(found, plan):
                finished = found.state != "running"
                if finished and (again or found.state == "failed"):
                    break
                return found.confirmation_id
        return kept.begin(self.study, plan=plan, machine=self.machine)

    def _continues(self, found: StoredConfirmation, plan: Mapping[str, Any]) -> bool:
        here = all(found.machine.get(k) == self.machine.get(k) for k in SAME_MACHINE)
        return here and found.plan == plan

    def _race(
        self, kept: _Kept, measured: Sequence[LevelResult]
    ) -> list[Mapping[str, Run]]:
        """Rounds until nobody is due; one epoch for all that are run now."""
        workloads = with_levels(self.launcher.workloads, measured)
        rounds = complete_rounds(kept.runs(), kept.lined, self.plan)
        epoch: int | None = None
        while due := racers(rounds, kept.lined, self.plan):
            if epoch is None:
                epoch = self.store.begin_epoch(self.study, self.machine)
            number = len(rounds) + 1
            sent = tuple(fresh(w, number=number) for w in workloads)
            launcher = replace(self.launcher, workloads=sent)
            played = {}
            for name in running_order(due, seed=self.seed, number=number):
                place = Run(number, name, epoch, None)
                played[name] = self._play(kept, place, launcher)
                self.progress.ran(played[name])
            rounds.append(played)
        return rounds

    def _play(self, kept: _Kept, place: Run, launcher: Launcher) -> Run:
        """Start a member, once more after a failure; a reference must not fail."""
        run, settings = place, kept.member(place.member).settings
        for last in (False, True):
            launch, launched = self._launch(settings, place, launcher)
            run = _judged(place, launched.outcome)
            leaves = last and not kept.is_reference(place.member)
            counts = run.failure is None or leaves
            kept.record(launch, launched, run if counts else None)
            if counts:
                return run
        raise HostUnfit(
            f"{run.member} failed twice in round {run.round_number}, so nothing can "
            f"be compared with it: {run.failure}. All rounds so far are saved; the "
            "same command continues"
        )

    def _launch(
        self, settings: EngineSettings, place: Run, launcher: Launcher
    ) -> tuple[int, Launched]:
        launch = self.store.begin_launch(
            self.study,
            epoch=place.epoch,
            number=None,
            role="baseline" if place.member == BASELINE else "trial",
            settings=settings,
            changes={},
        )
        capacities = self.store.capacities_rps(self.study)
        self.store.release()  # the engine core may be a fork of this process
        try:
            return launch, launcher.launch(
                settings,
                log_path=self.log_folder / f"launch-{launch:04d}.log",
                keep=lambda block: self.store.record_block(launch, block),
                progress=lambda phase: self.progress.phase(
                    place.round_number, place.member, phase
                ),
                capacities_rps=capacities,
            )
        except BaseException:
            self.store.abandon_launch(launch)
            raise

    def _conclude(self, kept: _Kept, rounds: Sequence[Mapping[str, Run]]) -> Confirmed:
        confirmed = conclusion(kept.lined, rounds, self.plan)
        spoken = confirmed.settled.items()
        kept.store.finish(
            kept.key,
            state="failed" if confirmed.exit_code == NOT_CONFIRMED else "decided",
            verdicts={n: s for n, s in spoken if not isinstance(s, AllLost)},
            sentence="\n".join(confirmed.sentences),
        )
        return confirmed


def standard_plan(rounds: int | None = None) -> Plan:
    """The standard looks as far as ``rounds`` reach, the last at ``rounds``.

    Raises:
        InputError: An interval needs at least two rounds, and twelve are the most.
    """
    if rounds is None:
        return STANDARD
    most = STANDARD.looks[-1]
    if not 2 <= rounds <= most:  # noqa: PLR2004 - one pair has no spread
        raise InputError(f"--rounds {rounds}: give a number from 2 to {most}")
    earlier = tuple(look for look in STANDARD.looks if look < rounds)
    return replace(STANDARD, looks=(*earlier, rounds))


def conclusion(
    lined: LineUp, rounds: Sequence[Mapping[str, Run]], plan: Plan
) -> Confirmed:
    """What complete rounds amount to, once every contest is settled."""
    settled: dict[str, Settled] = {}
    sentences = []
    for contest in lined.contests:
        state = settle(rounds, contest, plan)
        assert not isinstance(state, Continue), contest  # noqa: S101 - nobody is due
        settled[contest.reference] = state
        if isinstance(state, AllLost):
            sentences.append(_lost(rounds, contest.against))
        else:
            sentences.append(render_sentence(state, against=contest.against))
    main = settled[lined.contests[0].reference]
    return Confirmed(
        tuple(sentences),
        settled,
        _winner(lined, main),
        len(rounds),
        _exit_code(main),
    )


def _none_better(against: str, trials_count: int) -> Confirmed:
    sentence = (
        f"no setting beat {against}: of {trials_count} measured launches none "
        "scored better, so there was nothing to confirm"
    )
    return Confirmed((sentence,), {}, None, 0, 0)


def _lost(rounds: Sequence[Mapping[str, Run]], against: str) -> str:
    runs = [r for played in rounds for r in played.values() if r.failure]
    why = "; ".join(f"{r.member} in round {r.round_number}: {r.failure}" for r in runs)
    return f"not confirmed against {against}: every finalist failed ({why})"


def _winner(lined: LineUp, main: Settled) -> int | None:
    if not isinstance(main, WorthIt):
        return None
    numbers = {m.name: m.number for m in lined.members}
    return numbers.get(main.winner.name)


def _exit_code(main: Settled) -> int:
    match main:
        case AllLost():
            return NOT_CONFIRMED
        case Inconclusive():
            return INCONCLUSIVE
        case _:
            return 0


def _judged(place: Run, outcome: Outcome) -> Run:
    failure = failure_of(outcome)
    if failure is not None:
        return replace(place, failure=failure)
    levels = _levels(outcome)
    return replace(place, score=own_score(levels), metrics=own_metrics(levels))


def _levels(outcome: Outcome) -> tuple[LevelResult, ...]:
    return outcome.levels if isinstance(outcome, Measured) else ()
