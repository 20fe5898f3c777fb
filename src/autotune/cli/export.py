"""``autotune export``: the best trial of a study as a serve script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.storage import STUDIES, existing_trials, storage_url
from autotune.cli.table import describe, differences, figures, reference_of
from autotune.domain.trial import Trial
from autotune.errors import AutotuneError, InputError
from autotune.export.script import Provenance, render
from autotune.store.facts import opened


DUMMY_NOTE = "speed only, dummy weights"


def export(
    study: Annotated[str, typer.Option(help="The study's name.")],
    storage: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL; default studies/STUDY.db.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Default studies/STUDY-serve.sh."),
    ] = None,
) -> None:
    """Write the best feasible trial as a bash script that serves it."""
    path = output or STUDIES / f"{study}-serve.sh"
    print(write_script(study, storage, path))


def write_script(study: str, storage: str | None, path: Path) -> Path:
    """Export the best trial of ``study`` to ``path``; the path.

    Raises:
        AutotuneError: No trial of the study is feasible.
        InputError: The study is unknown, or ``path`` cannot be written.
    """
    found = existing_trials(storage, study)
    best = best_trial(found)
    if best is None:
        raise AutotuneError(
            f"study {study!r} has no feasible trial to export; "
            f"see: autotune trials --study {study}"
        )
    with opened(storage_url(storage, study)) as store:
        machine = store.machines(study)[best.epoch]
        spec = store.spec(study) or {}
    provenance = Provenance(
        _provenance_lines(study, best, reference_of(best, found), machine, spec),
        served_name=str(spec.get("model", "model")),
        python=sys.executable,
    )
    text = render(best.settings, provenance)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise InputError(f"-o {path}: {error.strerror}; give another file") from error
    return path


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """The feasible trial with the lowest score; the baseline wins ties."""
    feasible = [t for t in trials if t.score is not None and t.score.feasible]
    return min(
        feasible,
        key=lambda t: (t.score.value if t.score else 0.0, t.role != "baseline"),
        default=None,
    )


def is_dummy(trials: Sequence[Trial]) -> bool:
    """Whether the study ran on random weights: its outputs mean nothing."""
    return any(t.settings.arguments.get("load_format") == "dummy" for t in trials)


def _provenance_lines(
    study: str,
    best: Trial,
    baseline: Trial | None,
    machine: dict[str, Any],
    spec: dict[str, Any],
) -> list[tuple[str, str]]:
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    lines = [("weights", DUMMY_NOTE)] if is_dummy([best]) else []
    lines += [
        ("study", f"{study}, trial {best.number}"),
        ("model", str(spec.get("model", best.settings.model))),
        ("machine", f"{machine['device']} x {max(machine['device_count'], 1)}"),
        ("versions", versions),
        ("measured", f"{best.started_at:%Y-%m-%d %H:%M} UTC"),
        ("exported", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        ("differs from the baseline by", describe(differences(best, baseline))),
    ]
    for name, trial in (("baseline", baseline), ("this trial", best)):
        lines += [(name, line) for line in latency_lines(trial)]
    return lines


def latency_lines(trial: Trial | None) -> list[str]:
    """TTFT and TPOT of each level in a line."""
    if trial is None:
        return []
    levels = getattr(trial.outcome, "levels", ())
    return [
        f"{level.workload} at {level.level}: TTFT p50 {s.ttft_p50_ms:.1f} ms, "
        f"p95 {s.ttft_p95_ms:.1f} ms, TPOT mean {s.tpot_mean_ms:.2f} ms"
        for level, s in zip(levels, figures(trial), strict=False)
    ]
