"""A recorded study: what was measured, small enough to keep beside the code.

``Recording`` is the file ``studies/recorded/NAME.json``; ``write_recording`` and
``read_recording`` are the way to it and back. Single requests stay in the database.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from autotune.domain.settings import Value
from autotune.errors import InputError


SCHEMA = "autotune-recorded/1"


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """One workload at one level, over all its kept blocks; see ``score.summary``.

    Attributes:
        workload: The workload's name.
        level: The level's label.
        requests: Requests answered.
    """

    workload: str
    level: str
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tpot_mean_ms: float | None
    itl_p99_ms: float | None
    output_tokens_per_s: float | None
    requests: int


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """One launch.

    Attributes:
        number: The trial's number in its study; None for a repeated baseline.
        settings: Every engine argument asked for, those held in all trials included.
        changes: The knobs' values; empty for the baseline.
        effective: What the engine really used.
        outcome: ``measured``, ``saturated``, or the failure's class.
        evidence: The decisive line where it failed.
        score: 1.0 is the epoch's baseline, lower is better.
        phases: Seconds by phase.
        levels: Figures per workload and level, in the order measured.
    """

    number: int | None
    settings: Mapping[str, Value]
    changes: Mapping[str, Value]
    effective: Mapping[str, Value]
    outcome: str
    evidence: str | None
    score: float | None
    phases: Mapping[str, float]
    levels: tuple[LevelFigures, ...]


@dataclass(frozen=True, slots=True)
class RecordedEpoch:
    """One run on one machine: its baseline, and the trials held against it."""

    machine: Mapping[str, Any]
    baseline: RecordedTrial | None
    trials: tuple[RecordedTrial, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """A study as it is kept.

    Attributes:
        study: Its name.
        command: What was typed.
        vllm: Version that was measured.
        weights: ``real``, or ``dummy`` for random ones: then only speed is told.
        capacities_rps: Burst capacity by workload, from which levels were frozen.
        epochs: Runs, oldest first; scores compare within one only.
    """

    study: str
    command: str
    vllm: str
    weights: str
    capacities_rps: Mapping[str, float]
    epochs: tuple[RecordedEpoch, ...]

    @property
    def machine(self) -> Mapping[str, Any]:
        """Where the first epoch ran."""
        return self.epochs[0].machine if self.epochs else {}


# A trial's own figures are those of the level measured first, the busiest.
HEADLINES = tuple(
    f.name for f in fields(LevelFigures) if f.name not in ("workload", "level")
)


def recording_to_json(recording: Recording) -> dict[str, Any]:
    """The file's content as plain JSON; what is not a number is null."""
    return {
        "schema": SCHEMA,
        "study": recording.study,
        "command": recording.command,
        "machine": dict(recording.machine),
        "vllm": recording.vllm,
        "weights": recording.weights,
        "capacities_rps": dict(recording.capacities_rps),
        "epochs": [
            {
                "machine": dict(epoch.machine),
                "baseline": _trial_to_json(epoch.baseline) if epoch.baseline else None,
                "trials": [_trial_to_json(t) for t in epoch.trials],
            }
            for epoch in recording.epochs
        ],
    }


def recording_from_json(data: Mapping[str, Any]) -> Recording:
    """The recording that ``recording_to_json`` wrote.

    Raises:
        InputError: It is not one, or a later version wrote it.
    """
    schema = data.get("schema")
    if schema != SCHEMA:
        raise InputError(f"not a recorded study of this version: schema {schema!r}")
    try:
        return Recording(
            study=data["study"],
            command=data["command"],
            vllm=data["vllm"],
            weights=data["weights"],
            capacities_rps=data["capacities_rps"],
            epochs=tuple(_epoch(e) for e in data["epochs"]),
        )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"not a whole recorded study: {type(error).__name__} {error}"
        ) from error


def write_recording(path: Path, recording: Recording) -> None:
    """Write ``path`` whole, one line for each trial so that reviews can read it."""
    data = recording_to_json(recording)
    epochs = data.pop("epochs")
    head = json.dumps(data, indent=1)[:-2]
    body = ",\n".join(_epoch_text(e) for e in epochs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "epochs": [\n{body}\n ]\n}}\n', encoding="utf-8")


def read_recording(path: Path) -> Recording:
    """The recorded study in ``path``.

    Raises:
        InputError: There is no such file, or it holds something else.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return recording_from_json(data)
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _epoch_text(epoch: Mapping[str, Any]) -> str:
    trials = ",\n".join(f"   {json.dumps(t)}" for t in epoch["trials"])
    return (
        f'  {{"machine": {json.dumps(epoch["machine"])},\n'
        f'   "baseline": {json.dumps(epoch["baseline"])},\n'
        f'   "trials": [\n{trials}\n  ]}}'
    )


def _trial_to_json(trial: RecordedTrial) -> dict[str, Any]:
    levels = [_level_to_json(level) for level in trial.levels]
    first = levels[0] if levels else dict.fromkeys(HEADLINES)
    return {
        "number": trial.number,
        "settings": dict(trial.settings),
        "changes": dict(trial.changes),
        "effective": dict(trial.effective),
        "outcome": trial.outcome,
        "evidence": trial.evidence,
        "score": trial.score,
        **{name: first[name] for name in HEADLINES},
        "phases": {k: round(v, 3) for k, v in trial.phases.items()},
        "levels": levels,
    }


def _level_to_json(level: LevelFigures) -> dict[str, Any]:
    return {k: _figure(v) for k, v in asdict(level).items()}


def _figure(value: str | float | None) -> str | float | None:
    if not isinstance(value, float):
        return value
    return round(value, 3) if math.isfinite(value) else None


def _epoch(data: Mapping[str, Any]) -> RecordedEpoch:
    baseline = data["baseline"]
    return RecordedEpoch(
        machine=data["machine"],
        baseline=_trial(baseline) if baseline else None,
        trials=tuple(_trial(t) for t in data["trials"]),
    )


def _trial(data: Mapping[str, Any]) -> RecordedTrial:
    kept = {f.name: data[f.name] for f in fields(RecordedTrial)}
    kept["levels"] = tuple(LevelFigures(**level) for level in data["levels"])
    return RecordedTrial(**kept)
