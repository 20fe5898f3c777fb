"""``autotune confirm``: whether a study's best settings win a second time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import typer
from rich.markup import escape

from autotune.cli.storage import STUDIES, existing_trials, storage_url
from autotune.cli.table import describe
from autotune.cli.terminal import Terminal, open_terminal
from autotune.confirm import Confirmed, Confirmer, standard_plan
from autotune.confirm.entrants import changed, reference_trial
from autotune.confirm.front import over_http
from autotune.confirm.prompts import stored_workloads
from autotune.domain.settings import EngineSettings
from autotune.domain.trial import Trial
from autotune.engine.arguments import check_values, import_vllm
from autotune.engine.capture import captured
from autotune.hardware import read_machine
from autotune.launch import Launcher
from autotune.lint.launch_line import LaunchLine, parse_launch_line
from autotune.score.verdict import STANDARD, Plan
from autotune.store.confirmations import Run
from autotune.store.facts import opened
from autotune.tune import Tuner


def confirm(
    study: Annotated[str, typer.Option(help="The study's name.")],
    storage: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL; default studies/STUDY.db.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="At most so many rounds, 2 to 12; looks at 5, 8 and 12."),
    ] = None,
    *,
    baseline: Annotated[
        str | None,
        typer.Option(help="The 'vllm serve …' you run today, measured beside."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="New rounds, though there is a verdict.")
    ] = False,
) -> None:
    """Start the best trials and the baseline anew, in rounds, and compare them.

    The same command goes on where an interrupted one stopped. Exit codes: 0 decided,
    1 nothing feasible or every finalist failed, 2 bad input, 3 the machine lacks
    something, 4 inconclusive, 130 interrupted with everything saved.
    """
    plan = standard_plan(rounds)
    found = existing_trials(storage, study)
    terminal = open_terminal()
    logs = STUDIES / "logs" / study
    with captured(logs / "confirm.log"), opened(storage_url(storage, study)) as store:
        terminal.say("loading vLLM …")
        spec = store.spec(study) or {}
        launcher = _launcher(spec, found)
        today = today_settings(baseline, reference_trial(found).settings.model, spec)
        confirmer = Confirmer(
            study=study,
            store=store,
            launcher=launcher,
            log_folder=logs,
            machine=asdict(read_machine({"vllm": import_vllm()})),
            progress=Narrated(terminal),
            plan=plan,
            today=today,
        )
        confirmed = _carried_out(confirmer, terminal, again=again)
    say_confirmed(confirmed, found, terminal)
    if confirmed.exit_code:
        raise typer.Exit(confirmed.exit_code)


def confirm_tuned(
    tuner: Tuner,
    terminal: Terminal,
    *,
    plan: Plan = STANDARD,
    today: EngineSettings | None = None,
) -> Confirmed:
    """Confirm the study that ``tuner`` has just finished, and say what was found.

    Call it where output is captured; the caller exits with ``exit_code`` once the
    script is written.

    Raises:
        AutotuneError: No trial is feasible.
        HostUnfit: The baseline failed twice in a round; all rounds are saved.
        Exit: Interrupted (130).
    """
    confirmer = Confirmer(
        study=tuner.plan.name,
        store=tuner.store,
        launcher=replace(tuner.launcher, front=over_http),
        log_folder=tuner.plan.log_folder,
        machine=tuner.machine,
        progress=Narrated(terminal),
        plan=plan,
        today=today,
    )
    tuner.study.release()
    try:
        confirmed = _carried_out(confirmer, terminal, again=False)
        found = tuner.store.trials(tuner.plan.name, with_levels=False)
    finally:
        tuner.store.release()
    say_confirmed(confirmed, found, terminal)
    return confirmed


def today_settings(
    line: str | None, model: str, spec: Mapping[str, Any]
) -> EngineSettings | None:
    """What ``--baseline`` asks for on the study's model; None where it is not given.

    What the study holds in all trials holds here too, unless the line says otherwise.

    Raises:
        InputError: It is no launch line, or the installed vLLM refuses a value.
    """
    if line is None:
        return None
    read = parse_launch_line(line)
    check_values(read.arguments, where="--baseline")
    return laid_over(read, model, spec)


def laid_over(read: LaunchLine, model: str, spec: Mapping[str, Any]) -> EngineSettings:
    """A launch line over what a study holds in all trials."""
    return EngineSettings(
        model,
        {**spec.get("fixed", {}), **read.arguments},
        {**spec.get("environment", {}), **read.environment},
    )


@dataclass(frozen=True, slots=True)
class Narrated:
    """Progress of a confirmation as lines on the terminal."""

    terminal: Terminal

    def phase(self, number: int, member: str, phase: str) -> None:
        """One progress line."""
        told = phase.replace("_", "-")
        now = time.strftime("%H:%M:%S")
        self.terminal.say(f"[dim]{now}[/dim]  round {number}, {member}: {told}")

    def ran(self, run: Run) -> None:
        """One line for a finished run."""
        measured = ", ".join(f"{n} {v:.4g}" for n, v in run.metrics.items())
        failed = f"[red]left the race[/red]: {escape(run.failure or '')}"
        said = failed if run.score is None else f"score {run.score:.4g} ({measured})"
        place = f"[bold]round {run.round_number}, {run.member}[/bold]"
        self.terminal.say(f"{place}: {said}")


def say_confirmed(
    confirmed: Confirmed, found: Sequence[Trial], terminal: Terminal
) -> None:
    """The sentences, and which settings they are about."""
    for sentence in confirmed.sentences:
        terminal.say(f"[bold]{escape(sentence)}[/bold]")
    winner = next((t for t in found if _is(t, confirmed.winner)), None)
    if winner is not None:
        changes = describe(changed(winner, reference_trial(found)))
        terminal.say(f"confirmed: trial {winner.number}: {escape(changes)}")


def _is(trial: Trial, number: int | None) -> bool:
    return number is not None and trial.number == number


def _launcher(spec: Mapping[str, Any], found: Sequence[Trial]) -> Launcher:
    """For a study that exists, on the vLLM that is installed now."""
    import_vllm()
    from autotune.engine.local import VllmEngine
    from autotune.engine.shape import vocabulary_size

    workloads = stored_workloads(spec)
    vocabulary = vocabulary_size(reference_trial(found).settings.model)
    return Launcher(VllmEngine(), workloads, vocabulary, captured, front=over_http)


def _carried_out(confirmer: Confirmer, terminal: Terminal, *, again: bool) -> Confirmed:
    try:
        return confirmer.run(again=again)
    except KeyboardInterrupt:
        terminal.say("interrupted; every finished run is saved")
        raise typer.Exit(130) from None
