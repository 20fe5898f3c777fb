"""``autotune trials``: what a study has tried."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from autotune.cli.export import DUMMY_NOTE, is_dummy
from autotune.cli.recording import record, recording_table
from autotune.cli.storage import existing_trials
from autotune.cli.table import figures, trial_table
from autotune.domain.trial import Trial
from autotune.errors import InputError
from autotune.store.recorded import read_recording, write_recording
from autotune.tune import kind


def trials(
    study: Annotated[str | None, typer.Option(help="The study's name.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL; default studies/STUDY.db.")
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array instead of a table.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write the recorded study to this file.")
    ] = None,
    command: Annotated[
        str | None, typer.Option(help="With --export: what was typed for the study.")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="Read a recorded study instead of a database.")
    ] = None,
) -> None:
    """List the finished trials of a study, in order."""
    if recorded is not None:
        _show_recorded(recorded)
        return
    if study is None:
        raise InputError("give --study NAME, or --recorded FILE")
    if export is not None:
        write_recording(export, record(study, storage, command=command))
        print(f"recorded study: {export}")
        return
    found = existing_trials(storage, study)
    if as_json:
        print(json.dumps([trial_to_json(t) for t in found], indent=1))
        return
    if is_dummy(found):
        print(DUMMY_NOTE)
    Console().print(trial_table(found))


def _show_recorded(path: Path) -> None:
    recording = read_recording(path)
    print(f"{recording.study}, vLLM {recording.vllm}: {recording.command}")
    if recording.weights == "dummy":
        print(DUMMY_NOTE)
    Console().print(recording_table(recording))


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """A trial as plain JSON, with its figures per level."""
    evidence = getattr(trial.outcome, "evidence", None)
    levels = getattr(trial.outcome, "levels", ())
    return {
        "number": trial.number,
        "role": trial.role,
        "epoch": trial.epoch,
        "started_at": trial.started_at.isoformat(),
        "settings": trial.settings.to_json(),
        "changes": dict(trial.changes),
        "effective": dict(trial.effective),
        "outcome": kind(trial.outcome),
        "evidence": asdict(evidence) if evidence else None,
        "score": trial.score.value if trial.score else None,
        "constraints": dict(trial.score.constraints) if trial.score else None,
        "phases_s": dict(trial.phases_s),
        "levels": [
            {"workload": level.workload, "level": level.level} | asdict(summary)
            for level, summary in zip(levels, figures(trial), strict=False)
        ],
    }
