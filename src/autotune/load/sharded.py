"""Planned requests spread over load processes, chunks on one common clock back."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from itertools import count
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from autotune.errors import EngineDied, HostUnfit, RequestRefused
from autotune.load import Chunk, PlannedRequest
from autotune.load.http_target import Api, Dialect, HttpTarget
from autotune.load.lag import Lag, worst_lag
from autotune.load.shard_messages import (
    Cancel,
    Done,
    Failed,
    Open,
    Order,
    Report,
    Send,
    TakeLag,
)


_START_S = 30.0
_STOP_S = 2.0

Answer = tuple[Chunk, ...] | Lag | None


class Shard:
    """One load process and the answers that are due from it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "autotune.load.shard_worker"]
        with theirs:
            number = theirs.fileno()
            # No pipe of the worker's own: it says what it has to say through ours.
            self._process = subprocess.Popen(
                [*command, str(number)], pass_fds=(number,), stdin=subprocess.DEVNULL
            )
        self._pipe = Connection(ours.detach())
        self._due: dict[int, asyncio.Future[Answer]] = {}

    @property
    def load(self) -> int:
        """Answers that are due."""
        return len(self._due)

    def listen(self) -> None:
        """Take reports in the running event loop from now on."""
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._receive)

    async def order(self, number: int, message: Order | Open) -> Answer:
        """Send ``message`` and wait for the report that bears ``number``.

        Raises:
            RequestRefused: As the worker's target said.
            EngineDied: As the worker's target said.
            HostUnfit: The worker itself has ended.
        """
        loop = asyncio.get_running_loop()
        due: asyncio.Future[Answer] = loop.create_future()
        self._due[number] = due
        try:
            self._pipe.send(message)
            return await due
        except OSError as error:
            raise HostUnfit("a load process has ended") from error
        except asyncio.CancelledError:
            self.forget(number)
            raise
        finally:
            self._due.pop(number, None)

    def forget(self, number: int) -> None:
        """Tell the worker that nobody waits for ``number``."""
        try:
            self._pipe.send(Cancel(number))
        except OSError:
            return  # it has ended, and its answers with it

    def close(self) -> None:
        """Hang up, and see the process end."""
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._pipe.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _receive(self) -> None:
        try:
            while self._pipe.poll():
                self._settle(self._pipe.recv())
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            for due in self._due.values():
                if not due.done():
                    due.set_exception(HostUnfit("a load process has ended"))

    def _settle(self, report: Report) -> None:
        due = self._due.get(report.number)
        if due is None or due.done():
            return
        match report:
            case Done():
                due.set_result(report.value)
            case Failed():
                blamed = EngineDied if report.engine_died else RequestRefused
                due.set_exception(blamed(report.reason))


class ShardedTarget:
    """The same endpoint as ``HttpTarget``, driven by ``shards`` processes.

    Only encoded requests and finished answers cross process borders, so the
    generator's own process does no work per token. An answer's chunks are yielded
    together when it is whole; their stamps are those of the bytes' arrival.

    Args:
        base_url: Scheme, host and port.
        model: The served model's name.
        shards: Load processes.
        connections: Requests at once, over all processes.
        api: Which endpoint is driven.
        dialect: Whether vLLM's own request fields may be used.
        decode: Prompt token ids to text, for ``chat``.
        headers: Sent with every request.
        stamps_writes: As for ``StampingTransport``.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        shards: int,
        connections: int,
        api: Api = "completions",
        dialect: Dialect = "vllm",
        decode: Callable[[tuple[int, ...]], str] | None = None,
        headers: Mapping[str, str] | None = None,
        stamps_writes: bool = False,
    ) -> None:
        self._front = HttpTarget(
            base_url,
            model=model,
            api=api,
            dialect=dialect,
            decode=decode,
            headers=headers,
        )
        each = -(-connections // shards)
        self._opening = Open(base_url, api, each, dict(headers or {}), stamps_writes)
        self._shard_count = shards
        self._shards: list[Shard] = []
        self._numbers = count(1)

    async def __aenter__(self) -> Self:
        try:
            await self._front.warm(1)
            self._shards = [Shard() for _ in range(self._shard_count)]
            for shard in self._shards:
                shard.listen()
            async with asyncio.timeout(_START_S):
                await asyncio.gather(*(s.order(0, self._opening) for s in self._shards))
        except TimeoutError as error:
            await self._close()
            raise HostUnfit(f"no load process within {_START_S:g} s") from error
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def stream(self, request: PlannedRequest) -> AsyncGenerator[Chunk]:
        """Send ``request`` now; its chunks come when the answer is whole.

        Raises:
            RequestRefused: The server answered with an error, or not to the end.
            EngineDied: The server is gone, or says that its engine is.
            HostUnfit: A load process has ended.
        """
        shard = min(self._shards, key=lambda s: s.load)
        number = next(self._numbers)
        answer = await shard.order(number, Send(number, self._front.body(request)))
        if isinstance(answer, tuple):
            for chunk in answer:
                yield chunk

    async def reset_caches(self) -> bool:
        """As ``HttpTarget.reset_caches``."""
        return await self._front.reset_caches()

    async def take_lag(self) -> Lag:
        """The worst of the load processes' lag since the last ``take_lag``."""
        questions = [
            shard.order(number, TakeLag(number))
            for shard, number in zip(self._shards, self._numbers, strict=False)
        ]
        lags = await asyncio.gather(*questions)
        return worst_lag(lag for lag in lags if isinstance(lag, Lag))

    async def _close(self) -> None:
        for shard in self._shards:
            shard.close()
        self._shards = []
        await self._front.__aexit__(None, None, None)
