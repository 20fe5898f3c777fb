"""What the user typed in, a checked request out; nothing is touched yet."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import typer

from autotune.domain.settings import Value
from autotune.domain.workload import Level, LoadShare, OpenLoop, Workload
from autotune.errors import InputError
from autotune.files import load_study_file, load_workload_file
from autotune.load.workloads import WORKLOADS


class Weights(StrEnum):
    """Where the weights come from."""

    AUTO = "auto"
    DUMMY = "dummy"


# Prompts are sent as token ids, so dummy weights need no tokenizer either.
DUMMY: dict[Weights, dict[str, Value]] = {
    Weights.DUMMY: {"load_format": "dummy", "skip_tokenizer_init": True}
}


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for, checked as far as it can be without vLLM."""

    model: str
    trials: int
    study: str
    url: str
    workloads: tuple[Workload, ...]
    space: str | None
    fixes: Mapping[str, Value]
    allow_lossy: bool
    seed: int


def positive(trials: int) -> int:
    """``trials``, refused below 1."""
    if trials < 1:
        raise InputError(f"--trials {trials}: give at least 1")
    return trials


def levels_of(rate: float | None, load: str | None) -> tuple[Level, ...]:
    """The levels asked for; none keeps each workload's own."""
    if rate is not None and load is not None:
        raise InputError("--rate and --load both say how much is sent; give one")
    if rate is not None:
        if not 0 < rate < math.inf:
            raise InputError(f"--rate {rate:g}: give requests per second above 0")
        return (OpenLoop(rate),)
    if load is None:
        return ()
    return tuple(LoadShare(_share(text)) for text in load.split(","))


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 2:  # noqa: PLR2004 - twice the capacity saturates anything
        raise InputError(
            f"--load {text!r}: give shares of capacity above 0, such as 0.5,0.85"
        )
    return share


def study_name(model: str, workloads: list[str]) -> str:
    """What a study is called if nobody says: the model and what it was sent."""
    path = Path(model)
    short = path.resolve().name if path.is_dir() else path.name
    return "-".join([short, *(Path(w).stem for w in workloads)])


def defaults_from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Let a study file fill the options that the command line leaves open.

    Raises:
        InputError: The file is missing or malformed.
    """
    if path is None:
        return None
    options = load_study_file(path).options()
    defaults: dict[str, object] = {n.replace("-", "_"): v for n, v in options.items()}
    fixes = defaults.pop("fix", {})
    if isinstance(fixes, Mapping):
        defaults["fix"] = [f"{k}={json.dumps(v)}" for k, v in fixes.items()]
    load = defaults.pop("load", None)
    if isinstance(load, tuple):
        defaults["load"] = ",".join(str(share) for share in load)
    context.default_map = {"study": path.stem, **defaults}
    return path


def _workload(name: str, seed: int) -> Workload:
    if name.endswith((".yaml", ".yml")):
        return load_workload_file(Path(name)).workload(seed=seed)
    if name not in WORKLOADS:
        known = ", ".join(WORKLOADS)
        raise InputError(
            f"unknown workload {name!r}; there are: {known}. "
            "Or give a file ending in .yaml"
        )
    return replace(WORKLOADS[name], seed=seed)


def workloads_of(
    names: list[str], levels: tuple[Level, ...], seed: int
) -> tuple[Workload, ...]:
    """The named workloads, at the levels asked for or their own."""
    if len(set(names)) != len(names):
        raise InputError(f"--workload is given twice: {', '.join(names)}")
    chosen = []
    for name in names:
        workload = _workload(name, seed)
        chosen.append(replace(workload, levels=levels or workload.levels))
    return tuple(chosen)
