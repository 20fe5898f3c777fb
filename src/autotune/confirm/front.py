"""A running vLLM in, the same engine behind its own HTTP server as a target out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from autotune.domain.request import Chunk, PlannedRequest
from autotune.engine import RunningEngine
from autotune.engine.local import RunningVllm
from autotune.engine.serving import served
from autotune.load import Target
from autotune.load.sharded import ShardedTarget


SERVED_NAME = "autotune"
# Opened before the first request; more follow where more are in flight.
CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class ServedEngine:
    """Requests go through the server, caches are emptied at the engine."""

    target: Target
    running: RunningEngine

    def stream(self, request: PlannedRequest) -> AsyncIterator[Chunk]:
        """As the target; see ``load.Target``."""
        return self.target.stream(request)

    async def reset_caches(self) -> bool:
        """Directly: the server's route for it is open to developers only."""
        return await self.running.reset_caches()


@asynccontextmanager
async def over_http(running: RunningEngine) -> AsyncIterator[Target]:
    """Serve ``running`` as ``vllm serve`` would, and read it as a client does.

    The client is a process of its own, so that this one does a server's work only.
    """
    if not isinstance(running, RunningVllm):
        raise TypeError(f"{type(running).__name__} has no HTTP server")
    async with (
        served(running, name=SERVED_NAME) as url,
        ShardedTarget(
            url, model=SERVED_NAME, shards=1, connections=CONNECTIONS
        ) as target,
    ):
        yield ServedEngine(target, running)
