"""A study's workloads in, the same load with prompts no trial was sent out. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from autotune.domain.timing import LevelResult
from autotune.domain.workload import (
    ClosedLoop,
    Level,
    OpenLoop,
    RequestShape,
    Source,
    Workload,
)
from autotune.errors import InputError


# Blocks of a source below this belong to the trials, and so many to each round.
BLOCKS_PER_ROUND = 1000


@dataclass(frozen=True, slots=True)
class LaterBlocks:
    """A source as it goes on ``first`` blocks later."""

    source: Source
    first: int

    @property
    def context_tokens(self) -> int:
        """The longest sequence it can make, in tokens."""
        return self.source.context_tokens

    def shapes(
        self, count: int, *, block: int, draw: random.Random
    ) -> tuple[RequestShape, ...]:
        """``count`` requests of the later block."""
        return self.source.shapes(count, block=self.first + block, draw=draw)


def fresh(workload: Workload, *, number: int) -> Workload:
    """The workload of round ``number``: as long, as dense, with prompts of its own."""
    source = workload.source
    later = source and LaterBlocks(source, BLOCKS_PER_ROUND * number)
    return replace(workload, seed=workload.seed + number, source=later)


def with_levels(
    workloads: Sequence[Workload], measured: Sequence[LevelResult]
) -> tuple[Workload, ...]:
    """The workloads at the rates that were measured, not at shares of a capacity."""
    return tuple(
        replace(
            w,
            levels=tuple(level_of(r.level) for r in measured if r.workload == w.name),
        )
        for w in workloads
    )


def level_of(label: str) -> Level:
    """The level that bears ``label``."""
    number, _, unit = label.partition(" ")
    if unit == "at once":
        return ClosedLoop(int(number))
    if unit == "req/s":
        return OpenLoop(float(number))
    raise ValueError(f"no level is labelled {label!r}")


def stored_workloads(spec: Mapping[str, Any]) -> tuple[Workload, ...]:
    """The workloads a study was begun with; their levels are still to be given.

    Raises:
        InputError: One was read from recorded traffic, which the study does not hold.
    """
    return tuple(_stored(dict(w)) for w in spec["workloads"])


def _stored(values: dict[str, Any]) -> Workload:
    if values.get("source") or values.get("arrivals"):
        raise InputError(
            f"workload {values.get('name')!r} was read from recorded traffic: confirm "
            "at the end of the study, with the command that began it"
        )
    known = {f.name for f in fields(Workload)}
    kept = {k: v for k, v in values.items() if k in known}
    return Workload(**{**kept, "levels": ()})
