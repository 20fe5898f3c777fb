"""What the user typed in, a checked request out; nothing is touched yet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.domain.settings import Value
from autotune.domain.workload import Level, LoadShare, OpenLoop, Workload
from autotune.errors import InputError
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


def workloads_of(
    names: list[str], levels: tuple[Level, ...], seed: int
) -> tuple[Workload, ...]:
    """The named workloads, at the levels asked for or their own."""
    if len(set(names)) != len(names):
        raise InputError(f"--workload is given twice: {', '.join(names)}")
    chosen = []
    for name in names:
        if name not in WORKLOADS:
            known = ", ".join(WORKLOADS)
            raise InputError(f"unknown workload {name!r}; there are: {known}")
        workload = replace(WORKLOADS[name], seed=seed)
        chosen.append(replace(workload, levels=levels or workload.levels))
    return tuple(chosen)
