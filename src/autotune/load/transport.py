"""httpx requests in, responses whose every piece is stamped in the socket callback.

httpx's own transport wakes a chain of coroutines and a pure-Python parser for every
token; on two cores it reads a TTFT of 200 ms as seconds from 128 streams on
(``benchmarks/loadgen.py``). This one keeps httpx's
seam (``AsyncBaseTransport``, its request, response and error types) and replaces the
path of the bytes: an ``asyncio.Protocol`` per connection notes ``perf_counter()``
first thing when the event loop hands it data, before any parsing.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import cast

import httpx

from autotune.load.framing import ResponseFraming


Origin = tuple[str, str, int]

WRITTEN_HEADER = b"x-written-s"
"""``CLOCK_MONOTONIC`` just before the request's bytes went to the socket."""

_SHORTEST_LIFE_S = 1.0
_PROMPT_WAKES = 4
_PIECES_PER_WAKE = 16


class Connection(asyncio.Protocol):
    """One keep-alive connection that carries one exchange at a time."""

    def __init__(
        self, *, idle_timeout_s: float, on_lost: Callable[[Connection], None]
    ) -> None:
        self.framing = ResponseFraming()
        self.reused = False
        self.opened_s = time.perf_counter()
        self._on_lost = on_lost
        self._idle_timeout_s = idle_timeout_s
        self._loop = asyncio.get_running_loop()
        self._wire: asyncio.Transport | None = None
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: httpx.TransportError | None = None
        self._heard_s = 0.0
        self._woken_count = 0
        self._silence: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        """Whether a request could still be written to it."""
        return self._wire is not None and not self._wire.is_closing()

    @property
    def reusable(self) -> bool:
        """Whether the last exchange left it clean for another."""
        return self.alive and self.framing.complete and self.framing.keep_alive

    @property
    def untouched(self) -> bool:
        """Whether not one byte of an answer has come."""
        return not self.framing.started and not self._heard_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        self._wire = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Stamp, then unpack: whatever parsing costs comes after the stamp."""
        stamp = time.perf_counter()
        self._heard_s = stamp
        try:
            body = self.framing.feed(data)
        except ValueError as error:
            self._fail(httpx.RemoteProtocolError(str(error)))
            return
        if body:
            self._pieces.append((stamp, body))
        if self._worth_waking(body):
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange: whole if its framing says so, failed otherwise."""
        if not self.framing.close() and self._failure is None:
            reason = f": {exc}" if exc else ""
            self._failure = httpx.RemoteProtocolError(
                f"the server closed the connection in mid-answer{reason}"
            )
        self._wire = None
        self._wake()
        self._on_lost(self)

    def send(self, head: bytes, content: bytes, *, stamped: bool) -> None:
        """Write a request, with the time of writing if asked, and await its answer."""
        self.framing = ResponseFraming()
        self._pieces.clear()
        self._failure, self._heard_s, self._woken_count = None, 0.0, 0
        wire = self._wire
        if wire is None:
            raise httpx.WriteError("the connection is closed")
        written_s = time.perf_counter()
        if stamped:
            head = head[:-2] + b"%b: %.9f\r\n\r\n" % (WRITTEN_HEADER, written_s)
        wire.write(head + content)
        self._listen(since_s=written_s)

    async def head(self) -> None:
        """Wait until status and headers are here.

        Raises:
            httpx.TransportError: They will not come.
        """
        while not self.framing.started:
            await self._more()

    async def pieces(self) -> AsyncGenerator[tuple[float, bytes]]:
        """Body bytes with the monotonic time they arrived, to the body's end.

        Raises:
            httpx.TransportError: The body broke off.
        """
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if self.framing.complete:
                return
            await self._more()

    def close(self) -> None:
        """Drop the connection at once; an unfinished answer is of no more use."""
        self.rest()
        if self._wire is not None:
            self._wire.abort()

    def rest(self) -> None:
        """Stop watching for silence: no answer is expected."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    async def _more(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._failure is not None and not self._pieces:
            raise self._failure

    def _worth_waking(self, body: bytes) -> bool:
        """Whether the reader has to look at once.

        The stamp is already taken, so only the first pieces and the end are urgent;
        a coroutine switch for every token would triple the cost of receiving it.
        """
        return (
            self._woken_count < _PROMPT_WAKES
            or len(self._pieces) >= _PIECES_PER_WAKE
            or self.framing.complete
            or b"[DONE]" in body
        )

    def _wake(self) -> None:
        self._woken_count += 1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: httpx.TransportError) -> None:
        self._failure = self._failure or failure
        if self._wire is not None:
            self._wire.abort()
        self._wake()

    def _listen(self, *, since_s: float) -> None:
        # One timer per exchange, re-armed from the last byte: a timer per read
        # would cost more than the read.
        waits_s = max(since_s + self._idle_timeout_s - time.perf_counter(), 0.0)
        self._silence = self._loop.call_later(waits_s, self._check_silence, since_s)

    def _check_silence(self, since_s: float) -> None:
        if self._heard_s > since_s:
            self._listen(since_s=self._heard_s)
            return
        silence = f"no byte for {self._idle_timeout_s:g} s"
        self._fail(httpx.ReadTimeout(silence))


class StampedBody(httpx.AsyncByteStream):
    """A response body that also tells when each of its pieces arrived."""

    def __init__(self, connection: Connection, transport: StampingTransport) -> None:
        self._connection: Connection | None = connection
        self._transport = transport

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._bytes()

    async def _bytes(self) -> AsyncIterator[bytes]:
        async with aclosing(self.stamped()) as stamped:
            async for _, piece in stamped:
                yield piece

    def stamped(self) -> AsyncGenerator[tuple[float, bytes]]:
        """Pieces with ``perf_counter()`` at their arrival, in order."""
        if self._connection is None:
            raise httpx.StreamClosed
        return self._connection.pieces()

    async def aclose(self) -> None:
        """Give the connection back, or drop it if the answer is not whole."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.release(connection)


class StampingTransport(httpx.AsyncBaseTransport):
    """A pool of warm HTTP/1.1 connections to stamped responses.

    The pool hands out the connection used last, and replaces an idle one that the
    server closed (vLLM does so after 5 s), so that no request waits for a handshake.
    Proxies from the environment are not used: a proxy would be measured too.

    Args:
        verify: How to trust an ``https`` server; None for the system's rules.
        connect_timeout_s: For a connection with its TLS handshake.
        idle_timeout_s: Longest silence inside an answer.
        stamps_writes: Tell the server, in ``WRITTEN_HEADER``, when each request was
            written. A mock can then separate its own delay from the client's.
    """

    def __init__(
        self,
        *,
        verify: ssl.SSLContext | None = None,
        connect_timeout_s: float = 10.0,
        idle_timeout_s: float = 300.0,
        stamps_writes: bool = False,
    ) -> None:
        self._stamps_writes = stamps_writes
        self._context = verify
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._idle: dict[Origin, deque[Connection]] = {}
        self._busy: dict[Connection, Origin] = {}
        self._closed = False
        self._refills: set[asyncio.Task[None]] = set()

    async def warm(self, url: httpx.URL, *, connections: int) -> None:
        """Open connections until ``connections`` to ``url`` are ready to be written.

        Raises:
            httpx.TransportError: The server does not take them.
        """
        origin = _origin(url)
        ready = self._idle.setdefault(origin, deque())
        living = [c for c in ready if c.alive]
        ready.clear()
        ready.extend(living)
        for _ in range(connections - len(living)):
            ready.append(await self._connect(origin))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` and return as soon as the response's head is here."""
        content = await request.aread()
        head = _head(request)
        origin = _origin(request.url)
        connection = await self._exchange(origin, head, content)
        framing = connection.framing
        return httpx.Response(
            framing.status,
            headers=framing.headers,
            stream=StampedBody(connection, self),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        """Close every connection, busy ones too."""
        self._closed = True
        for task in self._refills:
            task.cancel()
        for connection in [*self._busy, *(c for q in self._idle.values() for c in q)]:
            connection.close()
        self._busy.clear()
        self._idle.clear()
        # Aborted sockets are closed by the loop's next turn.
        await asyncio.sleep(0)

    def release(self, connection: Connection) -> None:
        """Take back a connection after its exchange."""
        connection.rest()
        origin = self._busy.pop(connection, None)
        if origin is None or self._closed or not connection.reusable:
            connection.close()
            return
        self._idle.setdefault(origin, deque()).append(connection)

    async def _exchange(
        self, origin: Origin, head: bytes, content: bytes
    ) -> Connection:
        connection = await self._take(origin)
        try:
            connection.send(head, content, stamped=self._stamps_writes)
            await connection.head()
        except httpx.TransportError as error:
            silent = isinstance(error, httpx.TimeoutException)
            stale = connection.reused and connection.untouched and not silent
            self.release(connection)
            if not stale:
                raise
            # The server had closed an idle connection; nothing of this request
            # was answered, so a fresh connection may carry it.
            return await self._exchange(origin, head, content)
        except BaseException:
            self.release(connection)
            raise
        return connection

    async def _take(self, origin: Origin) -> Connection:
        ready = self._idle.get(origin, deque())
        while ready:
            connection = ready.pop()
            if connection.alive:
                connection.reused = True
                self._busy[connection] = origin
                return connection
        connection = await self._connect(origin)
        self._busy[connection] = origin
        return connection

    async def _connect(self, origin: Origin) -> Connection:
        scheme, host, port = origin
        if scheme == "https" and self._context is None:
            self._context = httpx.create_ssl_context()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(
                        idle_timeout_s=self._idle_timeout_s, on_lost=self._replace
                    ),
                    host,
                    port,
                    ssl=self._context if scheme == "https" else None,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection to {host}:{port}") from error
        except (OSError, ValueError) as error:
            raise httpx.ConnectError(f"{host}:{port}: {error}") from error
        return connection

    def _replace(self, lost: Connection) -> None:
        """Refill an idle connection's place, unless the server hangs up at once."""
        origin = next((o for o, q in self._idle.items() if lost in q), None)
        if origin is None or self._closed:
            return
        self._idle[origin].remove(lost)
        if time.perf_counter() - lost.opened_s > _SHORTEST_LIFE_S:
            task = asyncio.get_running_loop().create_task(self._refill(origin))
            self._refills.add(task)
            task.add_done_callback(self._refills.discard)

    async def _refill(self, origin: Origin) -> None:
        # A server that no longer answers is noticed by the next request.
        with suppress(httpx.TransportError):
            self._idle[origin].append(await self._connect(origin))


def _origin(url: httpx.URL) -> Origin:
    if url.scheme not in ("http", "https"):
        raise httpx.UnsupportedProtocol(f"{url}: not an http or https address")
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


def _head(request: httpx.Request) -> bytes:
    first = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)
    lines = (b"%b: %b\r\n" % pair for pair in request.headers.raw)
    return first + b"".join(lines) + b"\r\n"
