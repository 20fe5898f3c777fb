"""What a sharded load's processes say to each other; plain values, pickled."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.load import Chunk
from autotune.load.http_target import Api
from autotune.load.lag import Lag


@dataclass(frozen=True, slots=True)
class Open:
    """To the worker, once and first: where to, and over how many connections."""

    base_url: str
    api: Api
    connections: int
    headers: dict[str, str] = field(default_factory=dict)
    stamps_writes: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """To the worker: send this body now."""

    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Cancel:
    """To the worker: nobody waits for this answer any more."""

    number: int


@dataclass(frozen=True, slots=True)
class TakeLag:
    """To the worker: report the lag since the last such question."""

    number: int


@dataclass(frozen=True, slots=True)
class Done:
    """From the worker: an answer, whole, or the lag that was asked for, or ready."""

    number: int
    value: tuple[Chunk, ...] | Lag | None


@dataclass(frozen=True, slots=True)
class Failed:
    """From the worker: a request, or the opening, failed."""

    number: int
    reason: str
    engine_died: bool


Order = Send | Cancel | TakeLag
Report = Done | Failed
