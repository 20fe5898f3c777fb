"""The loop: propose, launch, score, store, tell; a generator of finished trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from autotune.domain.layout import collapse, expand
from autotune.domain.outcome import (
    EnvironmentFault,
    Infeasible,
    Measured,
    Outcome,
    OutOfMemory,
)
from autotune.domain.settings import EngineSettings, Value
from autotune.domain.space import SearchSpace
from autotune.domain.timing import LevelResult
from autotune.domain.trial import Role, Score, Trial
from autotune.errors import HostUnfit, InputError, StartFailed
from autotune.launch import Launched, Launcher
from autotune.score.scoring import score
from autotune.score.summary import summarize
from autotune.store.facts import FactStore
from autotune.strategy import Strategy
from autotune.strategy.shadow import Exhausted, values_key
from autotune.strategy.study import OptunaStudy


# Facts of a start rather than choices; they do not make a configuration another.
NOT_A_CHOICE = ("kv_blocks", "kv_tokens")


# Told of every launch's settings, its whole log, and the device's used bytes.
Learn = Callable[[EngineSettings, str, int | None], None]
# Says what share of memory settings are expected to lack.
Foresee = Callable[[EngineSettings], float]


class Progress(Protocol):
    """Told where the running launch has got to."""

    def __call__(self, number: int | None, phase: str) -> None:
        """``number`` is the trial's, None for an epoch's repeated baseline."""
        ...


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """What a study is to do.

    Attributes:
        name: The study's name.
        model: What vLLM is given as the model.
        space: Knobs, and what every trial and the baseline are held to.
        trials: How many finished trials the study should have in all.
        log_folder: Where each launch's whole log goes.
    """

    name: str
    model: str
    space: SearchSpace
    trials: int
    log_folder: Path

    def settings(self, values: Mapping[str, Value]) -> EngineSettings:
        """Knob values as complete settings; no values is the baseline."""
        arguments = expand({**self.space.fixed, **values})
        return EngineSettings(self.model, arguments, self.space.environment)


@dataclass(frozen=True, slots=True)
class Tuner:
    """The parts a study runs on; ``run`` is the loop."""

    plan: StudyPlan
    launcher: Launcher
    study: OptunaStudy
    store: FactStore
    strategy: Strategy
    machine: Mapping[str, object]
    progress: Progress
    learn: Learn = lambda _settings, _log, _used: None
    foresee: Foresee = lambda _settings: 0.0
    first: Sequence[Mapping[str, Value]] = ()

    def run(self) -> Iterator[Trial]:
        """Bring the study to its number of trials, yielding each as it is told.

        Raises:
            InputError: Another process is working on this study.
            HostUnfit: The same fault of the environment came twice.
        """
        self.recover()
        if self.study.finished_count() >= self.plan.trials:
            return
        epoch = self.store.begin_epoch(self.plan.name, self.machine)
        baseline = self._launch_baseline(epoch)
        yield baseline
        reference = _as_reference(baseline)
        tried = [
            t.effective for t in self.store.trials(self.plan.name, with_levels=False)
        ]
        while self.study.finished_count() < self.plan.trials:
            values = self._propose(tried)
            if values is None:
                return
            trial = self._run_trial(values, epoch, reference)
            tried.append(trial.effective)
            reference = reference or _as_reference(trial)
            yield trial

    def recover(self) -> None:
        """Settle what a dead run left: tell what was stored, drop what was cut off."""
        launches = self.store.running_launches(self.plan.name)
        if any(r.owner_alive for r in launches):
            raise InputError(
                f"study {self.plan.name!r} is being worked on by another process; "
                "wait for it, or give another --study"
            )
        for launch in launches:
            self.store.abandon_launch(launch.launch_id)
        stored = {
            t.number: t
            for t in self.store.trials(self.plan.name)
            if t.score is not None
        }
        for number in self.study.running_numbers():
            if number in stored:
                self._tell(stored[number])
            else:
                self.study.abandon(number)
        self.study.drop_queued()

    def _launch_baseline(self, epoch: int) -> Trial:
        """Trial 0 the first time; in a later epoch, a launch beside the trials."""
        settings = self.plan.settings({})
        number = None
        if not self._has_baseline():
            number = self.study.begin(self._values_that_ran(settings, {}))
        return self._run(settings, {}, number=number, role="baseline", epoch=epoch)

    def _has_baseline(self) -> bool:
        trials = self.store.trials(self.plan.name, with_levels=False)
        told = (t for t in trials if t.number is not None and t.score is not None)
        return any(t.role == "baseline" for t in told)

    def _propose(self, tried: Sequence[Mapping[str, Value]]) -> dict[str, Value] | None:
        """The next values whose effective configuration has not run yet.

        None when the space is exhausted.
        """
        seen = {_choice_key(effective) for effective in tried}
        facts, number = self.study.facts(), self.study.next_number()
        avoid: set[str] = set()
        for values in map(self.plan.space.repair, self.first):
            effective = self._resolve(self.plan.settings(values))
            if effective is not None and _choice_key(effective) not in seen:
                return values
        while True:
            try:
                values = dict(self.strategy.propose(facts, number=number, avoid=avoid))
            except Exhausted:
                return None
            effective = self._resolve(self.plan.settings(values))
            if effective is None or _choice_key(effective) not in seen:
                return values
            avoid.add(values_key(values))

    def _run_trial(
        self,
        values: Mapping[str, Value],
        epoch: int,
        reference: Sequence[LevelResult] | None,
    ) -> Trial:
        settings = self.plan.settings(values)
        number = self.study.begin(self._values_that_ran(settings, values))
        return self._run(
            settings,
            values,
            number=number,
            role="trial",
            epoch=epoch,
            reference=reference,
        )

    def _run(
        self,
        settings: EngineSettings,
        values: Mapping[str, Value],
        *,
        number: int | None,
        role: Role,
        epoch: int,
        reference: Sequence[LevelResult] | None = None,
    ) -> Trial:
        """Launch, once more after a fault; store, then tell."""
        earlier: Outcome | None = None
        while True:
            launch, launched = self._launch(settings, values, number, role, epoch)
            if earlier is not None or not _deserves_retry(launched.outcome):
                break
            earlier = launched.outcome
            self._finish(launch, launched, None, retried=True)
        trial = Trial(
            number=number,
            role=role,
            settings=settings,
            effective=launched.effective,
            outcome=launched.outcome,
            score=score(launched.outcome, reference),
            phases_s=launched.phases_s,
            started_at=launched.started_at,
            epoch=epoch,
            changes=values,
        )
        self._finish(launch, launched, trial.score)
        self._tell(trial)
        _refuse_repeated_fault(earlier, launched.outcome)
        return trial

    def _launch(
        self,
        settings: EngineSettings,
        values: Mapping[str, Value],
        number: int | None,
        role: Role,
        epoch: int,
    ) -> tuple[int, Launched]:
        launch = self.store.begin_launch(
            self.plan.name,
            epoch=epoch,
            number=number,
            role=role,
            settings=settings,
            changes=values,
        )
        capacities = self.store.capacities_rps(self.plan.name)
        log_path = self.plan.log_folder / f"launch-{launch:04d}.log"
        self.store.release()  # the engine core may be a fork of this process
        self.study.release()
        launched = self.launcher.launch(
            settings,
            log_path=log_path,
            keep=lambda block: self.store.record_block(launch, block),
            progress=lambda phase: self.progress(number, phase),
            capacities_rps=capacities,
        )
        launched = _graded(launched, self.foresee(settings))
        self.learn(settings, _text(log_path), _used_bytes(launched.outcome))
        self.store.freeze_capacities(self.plan.name, launched.capacities_rps)
        return launch, launched

    def _finish(
        self,
        launch: int,
        launched: Launched,
        judged: Score | None,
        *,
        retried: bool = False,
    ) -> None:
        self.store.finish_launch(
            launch,
            outcome=launched.outcome,
            effective=launched.effective,
            phases_s=launched.phases_s,
            score=judged,
            retried=retried,
        )

    def _tell(self, trial: Trial) -> None:
        if trial.number is None:
            return
        if trial.score is None:
            self.study.abandon(trial.number)
            return
        self.study.tell(trial.number, trial.score, attributes=attributes(trial))

    def _resolve(self, settings: EngineSettings) -> Mapping[str, Value] | None:
        try:
            with self.launcher.capture(self.plan.log_folder / "resolve.log"):
                return self.launcher.engine.resolve(settings)
        except StartFailed:
            return None

    def _values_that_ran(
        self, settings: EngineSettings, proposed: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Knob values as vLLM will really use them; as proposed if it refuses."""
        effective = self._resolve(settings)
        if effective is None:
            return dict(proposed)
        known = {**effective, **collapse(effective)}
        names = [k.name for k in self.plan.space.knobs]
        return {n: known[n] for n in names if n in known} | {
            n: v for n, v in proposed.items() if n not in known
        }


def attributes(trial: Trial) -> dict[str, object]:
    """What the Optuna dashboard shows beside a trial's parameters."""
    shown: dict[str, object] = {"role": trial.role, "outcome": kind(trial.outcome)}
    for level in _levels(trial.outcome) or ():
        figures = summarize(level)
        if figures is not None:
            name = f"{level.workload} {level.level}"
            shown[f"{name} TTFT p95 ms"] = round(figures.ttft_p95_ms, 2)
            shown[f"{name} TPOT mean ms"] = round(figures.tpot_mean_ms, 3)
            shown[f"{name} output tokens/s"] = round(figures.output_tokens_per_s, 1)
    return shown


def kind(outcome: Outcome) -> str:
    """The outcome in a word: ``measured``, ``saturated``, or the failure's class."""
    match outcome:
        case Measured():
            return "measured"
        case EnvironmentFault() | Infeasible():
            return outcome.evidence.failure_class
        case _:
            return getattr(outcome, "phase", "saturated")


def _as_reference(trial: Trial) -> tuple[LevelResult, ...] | None:
    """Its levels, if others may be measured against it."""
    feasible = trial.score is not None and trial.score.feasible
    return _levels(trial.outcome) if feasible else None


def _graded(launched: Launched, missing_share: float) -> Launched:
    """An out-of-memory outcome also knows the shortfall that was predicted."""
    if not isinstance(launched.outcome, OutOfMemory):
        return launched
    outcome = replace(launched.outcome, predicted_fraction=missing_share)
    return replace(launched, outcome=outcome)


def _used_bytes(outcome: Outcome) -> int | None:
    """Memory in use on the fullest device while the engine served, if read."""
    read = [
        value
        for level in _levels(outcome) or ()
        for block in level.blocks
        for name, value in block.counters.items()
        if name.endswith("_used_bytes") and value is not None
    ]
    return int(max(read)) if read else None


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def _levels(outcome: Outcome) -> tuple[LevelResult, ...] | None:
    return outcome.levels if isinstance(outcome, Measured) else None


def _choice_key(effective: Mapping[str, Value]) -> frozenset[tuple[str, Value]]:
    return frozenset((k, v) for k, v in effective.items() if k not in NOT_A_CHOICE)


def _deserves_retry(outcome: Outcome) -> bool:
    """A fault of the environment, or an engine that died without saying why."""
    match outcome:
        case EnvironmentFault():
            return True
        case Infeasible(evidence=evidence):
            return evidence.failure_class == "engine_dead"
        case _:
            return False


def _refuse_repeated_fault(earlier: Outcome | None, latest: Outcome) -> None:
    faults = [o for o in (earlier, latest) if isinstance(o, EnvironmentFault)]
    classes = {f.evidence.failure_class for f in faults}
    if len(faults) > len(classes):
        found = faults[-1].evidence
        raise HostUnfit(
            f"the same fault twice, {found.failure_class}: {found.line} "
            f"{found.advice} (whole log: {found.log_path}). The study is saved; the "
            "same command continues it"
        )
