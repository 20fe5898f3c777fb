"""What happens in a study, told on the terminal in a line each."""

from __future__ import annotations

from rich.markup import escape

from autotune.cli.export import DUMMY_NOTE, best_trial, is_dummy
from autotune.cli.request import Request
from autotune.cli.storage import existing_trials
from autotune.cli.table import describe, differences, reference_of, trial_table
from autotune.cli.terminal import Terminal
from autotune.domain.trial import Trial
from autotune.engine.effective import silent_changes
from autotune.errors import AutotuneError
from autotune.tune import Tuner, kind


def say_start(tuner: Tuner, terminal: Terminal) -> None:
    """What the study is about to do."""
    plan = tuner.plan
    fixed = describe(dict(plan.space.fixed))
    knobs = ", ".join(k.name for k in plan.space.knobs)
    terminal.say(f"study [bold]{plan.name}[/bold]: {escape(plan.model)}")
    terminal.say(f"held in all trials and the baseline: {escape(fixed)}")
    terminal.say(f"turned: {knobs}")
    done = tuner.study.finished_count()
    if done:
        terminal.say(f"continuing: {done} of {plan.trials} trials are done")


def say_trial(trial: Trial, terminal: Terminal) -> None:
    """One line for a finished trial."""
    name = "baseline" if trial.role == "baseline" else f"trial {trial.number}"
    spent = ", ".join(f"{k} {v:.1f} s" for k, v in trial.phases_s.items())
    changes = describe(dict(trial.changes)) if trial.changes else "vLLM's defaults"
    if kind(trial.outcome) == "measured" and trial.score:
        verdict = f"score {trial.score.value:.3f}"
    else:
        evidence = getattr(trial.outcome, "evidence", None)
        line = evidence.line[:120] if evidence else ""
        verdict = f"[red]{kind(trial.outcome)}[/red] {escape(line)}"
    terminal.say(f"[bold]{name}[/bold]: {verdict} ({spent}) {escape(changes)}")
    changed = silent_changes(trial.settings.arguments, trial.effective)
    for knob, (asked, ran) in changed.items():
        terminal.say(f"  asked for {knob}={asked}, vLLM runs {ran}")


def say_result(request: Request, terminal: Terminal) -> None:
    """Print the table and name the best trial.

    Raises:
        AutotuneError: No trial is feasible.
    """
    found = existing_trials(request.url, request.study)
    terminal.console.print(trial_table(found))
    if is_dummy(found):
        terminal.say(DUMMY_NOTE)
    best = best_trial(found)
    if best is None:
        raise AutotuneError("no trial is feasible; see the failures above")
    if not any(t.role == "baseline" and kind(t.outcome) == "measured" for t in found):
        terminal.say(
            "vLLM's defaults do not start here; the first feasible trial is the "
            "reference (score 1)"
        )
    changed = describe(differences(best, reference_of(best, found)))
    value = best.score.value if best.score else 1.0
    terminal.say(
        f"best: trial {best.number}, score {value:.3f} (1 = the baseline, lower is "
        f"better; one measurement, not yet confirmed): {escape(changed)}"
    )
