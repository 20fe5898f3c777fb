"""``autotune dashboard``: a study in Optuna's dashboard, on this machine only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.export import is_dummy, latency_lines
from autotune.cli.storage import existing_trials, storage_url
from autotune.cli.studies import log_folder
from autotune.cli.table import describe, differences, reference_of
from autotune.dashboard.files import ServedFile, with_files
from autotune.dashboard.page import Page
from autotune.dashboard.server import HOST, local_server
from autotune.dashboard.timeline import timeline
from autotune.domain.outcome import Measured
from autotune.domain.trial import Trial
from autotune.store.facts import opened
from autotune.store.upkeep import launch_ids
from autotune.tune import kind


PLAIN = "text/plain; charset=utf-8"


def dashboard(
    study: Annotated[str, typer.Option(help="The study's name.")],
    storage: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL; default studies/STUDY.db.")
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 takes one that is free.")
    ] = 8080,
) -> None:
    """Serve Optuna's dashboard of a study, also while the study runs.

    Trials that are told meanwhile appear at once; their notes the next time.
    """
    found = existing_trials(storage, study)
    url = storage_url(storage, study)
    page = Page(url)
    study_id = page.study_id(study)
    with opened(url) as store:
        launches = launch_ids(store, study)
    files = served_files(found, launches, log_folder(study))
    with local_server(with_files(page.application, files), port=port) as server:
        page.write_notes(study_id, notes(found))
        address = f"http://{HOST}:{server.server_port}/dashboard/studies/{study_id}"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def served_files(
    trials: Sequence[Trial], launches: Mapping[int, int], logs: Path
) -> dict[str, ServedFile]:
    """Log, effective configuration and timing of each trial, by their paths."""
    files: dict[str, ServedFile] = {}
    for trial in trials:
        if trial.number not in launches or trial.number is None:
            continue
        log = logs / f"launch-{launches[trial.number]:04d}.log"
        folder = _folder(trial)
        files |= {
            f"{folder}/engine.log": ServedFile(PLAIN, log.read_bytes),
            f"{folder}/effective.json": ServedFile(
                "application/json", partial(_effective_json, trial)
            ),
            f"{folder}/timing.svg": ServedFile(
                "image/svg+xml", partial(_timing_svg, trial)
            ),
        }
    return files


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
    lines += [*_failure(trial), *_links(trial), *_effective(trial), *_phases(trial)]
    return "\n".join(lines)


def _folder(trial: Trial) -> str:
    return f"/autotune/trials/{trial.number}"


def _links(trial: Trial) -> list[str]:
    """Links to what ``autotune dashboard`` serves beside the pages."""
    folder = _folder(trial)
    links = [
        f"[engine log]({folder}/engine.log)",
        f"[effective configuration]({folder}/effective.json)",
    ]
    lines = ["", " · ".join(links)]
    if isinstance(trial.outcome, Measured):
        lines += ["", f"![requests over time]({folder}/timing.svg)"]
    return lines


def _effective_json(trial: Trial) -> bytes:
    return json.dumps(dict(trial.effective), indent=1).encode()


def _timing_svg(trial: Trial) -> bytes:
    return timeline(getattr(trial.outcome, "levels", ())).encode()


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
