"""One process of a sharded load: encoded requests in through a pipe, chunks out.

Run by ``load.sharded`` as ``python -m autotune.load.shard_worker FD``. Stamps are
``perf_counter()``, which on Linux is one clock for all processes. Nothing here
imports an engine.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from multiprocessing.connection import Connection

from autotune.errors import AutotuneError, EngineDied, RequestRefused
from autotune.load.http_target import HttpTarget
from autotune.load.lag import LagSampler
from autotune.load.shard_messages import (
    Cancel,
    Done,
    Failed,
    Open,
    Order,
    Send,
    TakeLag,
)
from autotune.load.transport import StampingTransport


class ShardWorker:
    """Carries out orders until the pipe closes."""

    def __init__(self, pipe: Connection, target: HttpTarget, lag: LagSampler) -> None:
        self._pipe = pipe
        self._target = target
        self._lag = lag
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._closed = asyncio.Event()

    async def serve(self) -> None:
        """Follow orders as they arrive; returns when the parent has gone."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._follow)
        try:
            await self._closed.wait()
        finally:
            loop.remove_reader(self._pipe.fileno())
            for task in self._tasks.values():
                task.cancel()

    def _follow(self) -> None:
        try:
            while self._pipe.poll():
                self._obey(self._pipe.recv())
        except (EOFError, OSError):
            self._closed.set()

    def _obey(self, order: Order) -> None:
        match order:
            case Send():
                task = asyncio.get_running_loop().create_task(self._carry(order))
                self._tasks[order.number] = task
                task.add_done_callback(lambda _: self._tasks.pop(order.number, None))
            case Cancel():
                if order.number in self._tasks:
                    self._tasks[order.number].cancel()
            case TakeLag():
                self._pipe.send(Done(order.number, self._lag.take()))
                # Between blocks nobody waits; within one, collections would stall.
                gc.collect()

    async def _carry(self, order: Send) -> None:
        try:
            chunks = [chunk async for chunk in self._target.exchange(order.body)]
        except (RequestRefused, EngineDied) as error:
            died = isinstance(error, EngineDied)
            self._pipe.send(Failed(order.number, str(error), engine_died=died))
            return
        self._pipe.send(Done(order.number, tuple(chunks)))


async def work(pipe: Connection) -> None:
    """Open the target, say so, and serve."""
    opening: Open = pipe.recv()
    target = HttpTarget(
        opening.base_url,
        model="",
        api=opening.api,
        connections=opening.connections,
        headers=opening.headers,
        transport=StampingTransport(stamps_writes=opening.stamps_writes),
    )
    try:
        async with target, LagSampler() as lag:
            gc.collect()
            gc.freeze()
            gc.disable()
            pipe.send(Done(0, None))
            await ShardWorker(pipe, target, lag).serve()
    except AutotuneError as error:
        pipe.send(Failed(0, str(error), engine_died=isinstance(error, EngineDied)))


def main() -> None:
    """Serve the pipe whose file descriptor is the only argument."""
    with Connection(int(sys.argv[1])) as pipe:
        asyncio.run(work(pipe))


if __name__ == "__main__":
    main()
