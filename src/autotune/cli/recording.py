"""A study in the database in, its recording out; a recording in, a table out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from autotune.cli.storage import existing_trials, storage_url
from autotune.cli.table import COLUMNS
from autotune.domain.timing import LevelResult
from autotune.domain.trial import Trial
from autotune.score.summary import summarize
from autotune.store.facts import opened
from autotune.store.recorded import (
    LevelFigures,
    RecordedEpoch,
    RecordedTrial,
    Recording,
)
from autotune.tune import kind


def record(study: str, storage: str | None, *, command: str | None) -> Recording:
    """Everything worth keeping of ``study``; ``command`` overrides what is known.

    Raises:
        InputError: There is no such study.
    """
    trials = existing_trials(storage, study)
    with opened(storage_url(storage, study)) as store:
        spec = store.spec(study) or {}
        machines, capacities = store.machines(study), store.capacities_rps(study)
    dummy = spec.get("fixed", {}).get("load_format") == "dummy"
    return Recording(
        study=study,
        command=command or command_of(study, spec),
        vllm=str(spec.get("vllm", "")),
        weights="dummy" if dummy else "real",
        capacities_rps=capacities,
        epochs=tuple(
            _epoch(machine, [t for t in trials if t.epoch == number])
            for number, machine in sorted(machines.items())
        ),
    )


def command_of(study: str, spec: Mapping[str, Any]) -> str:
    """The command that continues a study, as far as its own record tells it."""
    fixed = spec.get("fixed", {})
    words = ["autotune", "--model", Path(str(spec.get("model", ""))).name]
    words += ["--study", study, "--seed", str(spec.get("seed", 0))]
    for workload in spec.get("workloads", ()):
        words += ["--workload", workload["name"]]
    if fixed.get("load_format") == "dummy":
        words += ["--weights", "dummy"]
    return shlex.join(words)


def recording_table(recording: Recording) -> Table:
    """Every recorded trial, as ``autotune trials`` shows those of a database."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("epoch", *COLUMNS):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("changes", overflow="fold")
    for number, epoch in enumerate(recording.epochs, start=1):
        launches = (*([epoch.baseline] if epoch.baseline else ()), *epoch.trials)
        for trial in launches:
            table.add_row(str(number), *_row(trial))
    return table


def _epoch(machine: Mapping[str, Any], trials: Sequence[Trial]) -> RecordedEpoch:
    baselines = [t for t in trials if t.role == "baseline"]
    return RecordedEpoch(
        machine=machine,
        baseline=_trial(baselines[0]) if baselines else None,
        trials=tuple(_trial(t) for t in trials if t.role != "baseline"),
    )


def _trial(trial: Trial) -> RecordedTrial:
    evidence = getattr(trial.outcome, "evidence", None)
    levels: Sequence[LevelResult] = getattr(trial.outcome, "levels", ())
    return RecordedTrial(
        number=trial.number,
        settings=dict(trial.settings.arguments),
        changes=dict(trial.changes),
        effective=dict(trial.effective),
        outcome=kind(trial.outcome),
        evidence=evidence.line if evidence else None,
        score=trial.score.value if trial.score else None,
        phases=dict(trial.phases_s),
        levels=tuple(f for level in levels if (f := _figures(level)) is not None),
    )


def _figures(level: LevelResult) -> LevelFigures | None:
    found = summarize(level)
    if found is None:
        return None
    return LevelFigures(
        workload=level.workload,
        level=level.level,
        ttft_p50_ms=found.ttft_p50_ms,
        ttft_p95_ms=found.ttft_p95_ms,
        tpot_mean_ms=found.tpot_mean_ms,
        itl_p99_ms=found.itl_p99_ms,
        output_tokens_per_s=found.output_tokens_per_s,
        requests=found.requests,
    )


def _row(trial: RecordedTrial) -> list[str]:
    number = "-" if trial.number is None else str(trial.number)
    score = "-" if trial.score is None else f"{trial.score:.3f}"
    start = trial.phases.get("start")
    changed = " ".join(f"{k}={v}" for k, v in trial.changes.items())
    figures = ["-"] * 4
    if trial.levels:
        first = trial.levels[0]
        figures = [
            _number(first.ttft_p50_ms, 0),
            _number(first.ttft_p95_ms, 0),
            _number(first.tpot_mean_ms, 1),
            _number(first.output_tokens_per_s, 0),
        ]
    outcome = "" if trial.outcome == "measured" else f"{trial.outcome} "
    text = outcome + (changed or "vLLM's defaults (baseline)")
    return [number, score, *figures, _number(start, 1), text]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
