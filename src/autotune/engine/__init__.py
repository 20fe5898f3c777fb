"""The engine seam: settings in, a running engine out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from autotune.domain.request import Chunk, PlannedRequest
from autotune.domain.settings import EngineSettings, Value


class RunningEngine(Protocol):
    """An engine that is ready to answer."""

    @property
    def effective(self) -> Mapping[str, Value]:
        """What the engine really uses, by engine argument or fact name."""
        ...

    @property
    def phases_s(self) -> Mapping[str, float]:
        """Seconds spent so far by phase; ``stop`` appears when it has stopped."""
        ...

    def stream(self, request: PlannedRequest) -> AsyncIterator[Chunk]:
        """Send ``request`` now and yield its output as it arrives."""
        ...

    async def reset_caches(self) -> bool:
        """Forget cached prefixes; False when the engine could not."""
        ...

    def counters(self) -> Mapping[str, float | None]:
        """Counters since the engine started; what cannot be read is None."""
        ...


class Engine(Protocol):
    """Something that can be started with settings."""

    def resolve(self, settings: EngineSettings) -> Mapping[str, Value]:
        """What these settings would become, without starting anything.

        Raises:
            StartFailed: The engine refuses them.
        """
        ...

    def start(self, settings: EngineSettings) -> AbstractContextManager[RunningEngine]:
        """Start, and stop on leaving the ``with`` block, whatever happened in it.

        Raises:
            StartFailed: The engine did not come up.
            DeadlineExceeded: It was not ready in time.
        """
        ...
