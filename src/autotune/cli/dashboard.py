"""``autotune dashboard``: a study in Optuna's dashboard, on this machine only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from autotune.cli.export import is_dummy, latency_lines
from autotune.cli.storage import existing_trials, storage_url
from autotune.cli.table import describe, differences, reference_of
from autotune.dashboard.page import Page
from autotune.dashboard.server import HOST, local_server
from autotune.domain.trial import Trial
from autotune.tune import kind


def dashboard(
    study: Annotated[str, typer.Option(help="The study's name.")],
    storage: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL; default studies/STUDY.db.")
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 takes one that is free.")
    ] = 8080,
) -> None:
    """Serve Optuna's dashboard of a study, also while the study runs."""
    found = existing_trials(storage, study)
    page = Page(storage_url(storage, study))
    study_id = page.study_id(study)
    with local_server(page, port=port) as server:
        page.write_notes(study_id, notes(found))
        address = f"http://{HOST}:{server.server_port}/dashboard/studies/{study_id}"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def notes(trials: Sequence[Trial]) -> dict[int, str]:
    """What is to be read beside each trial that was told, in Markdown."""
    return {
        t.number: _note(t, trials)
        for t in trials
        if t.number is not None and t.score is not None
    }


def _note(trial: Trial, trials: Sequence[Trial]) -> str:
    baseline = reference_of(trial, trials)
    if trial.role == "baseline":
        changed = "nothing: vLLM's defaults"
    else:
        changed = describe(differences(trial, baseline))
    lines = [
        f"**{kind(trial.outcome)}**",
        "",
        f"Differs from the baseline by {changed}",
    ]
    if is_dummy([trial]):
        lines += ["", "Speed only, dummy weights."]
    lines += ["", *(f"- {line}" for line in latency_lines(trial))]
    return "\n".join([*lines, *_failure(trial), *_effective(trial), *_phases(trial)])


def _failure(trial: Trial) -> list[str]:
    evidence = getattr(trial.outcome, "evidence", None)
    if evidence is None:
        return []
    lines = ["", _code(evidence.line), "", evidence.advice]
    if evidence.log_path:
        lines += ["", f"Whole log: `{evidence.log_path}`"]
    return lines


def _effective(trial: Trial) -> list[str]:
    if not trial.effective:
        return []
    rows = [f"| `{name}` | `{value}` |" for name, value in trial.effective.items()]
    return ["", "What the engine used:", "", "| setting | value |", "|---|---|", *rows]


def _phases(trial: Trial) -> list[str]:
    spent = ", ".join(f"{name} {s:.1f} s" for name, s in trial.phases_s.items())
    return ["", f"Time: {spent}"] if spent else []


def _code(text: str) -> str:
    """Text of an engine's log, which may hold anything, as it stands."""
    return "\n".join(f"    {line}" for line in text.splitlines())
