"""Bytes cross real local sockets: warm, stamped, reused, and never half-trusted."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx
import pytest

from autotune.errors import EngineDied, RequestRefused
from autotune.load import Chunk, PlannedRequest
from autotune.load.http_target import HttpTarget
from autotune.load.transport import StampingTransport


REQUEST = PlannedRequest(
    request_id="r",
    group=0,
    scheduled_s=0.0,
    prompt_token_ids=(1,),
    output_tokens=2,
)
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST = b'data: {"choices":[{"text":"a"}],"usage":{"completion_tokens":1}}\n\n'
LAST = (
    b'data: {"choices":[{"text":"b","finish_reason":"length"}],'
    b'"usage":{"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


GOOD = HEAD + chunk(FIRST) + chunk(LAST) + b"0\r\n\r\n"


async def whole(writer: asyncio.StreamWriter) -> None:
    writer.write(GOOD)


class Server:
    """A local server that answers each request with the next of its answers."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.url = ""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()
        await asyncio.sleep(0.01)

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader, writer):
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /health"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    continue
                length = int(head.lower().split(b"content-length: ")[1].split()[0])
                await reader.readexactly(length)
                await (self._answers.pop(0) if self._answers else whole)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self._writers.discard(writer)


async def ask(target: HttpTarget) -> list[Chunk]:
    return [chunk async for chunk in target.stream(REQUEST)]


def target_of(server: Server, *, connections: int = 1, idle_timeout_s: float = 5.0):
    return HttpTarget(
        server.url,
        model="m",
        connections=connections,
        transport=StampingTransport(idle_timeout_s=idle_timeout_s),
    )


def test_connections_are_open_before_the_first_request_and_are_used_again():
    async def scenario() -> tuple[int, int]:
        async with Server() as server, target_of(server, connections=3) as target:
            await asyncio.sleep(0.02)
            before = server.connections
            for _ in range(3):
                await asyncio.gather(*(ask(target) for _ in range(3)))
            return before, server.connections

    assert asyncio.run(scenario()) == (3, 3)


def test_a_stamp_is_the_arrival_and_not_the_moment_somebody_looks():
    written_s = []

    async def spread(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for piece in (FIRST, LAST):
            await asyncio.sleep(0.05)
            written_s.append(time.perf_counter())
            writer.write(chunk(piece))
        writer.write(b"0\r\n\r\n")

    async def scenario() -> list[Chunk]:
        async with Server(spread) as server, target_of(server) as target:
            chunks = []
            async for piece in target.stream(REQUEST):
                chunks.append(piece)
                await asyncio.sleep(0.1)
            return chunks

    first, last, _ = asyncio.run(scenario())

    assert 0 <= first.received_s - written_s[0] < 0.04
    assert 0 <= last.received_s - written_s[1] < 0.04


def test_a_connection_closed_while_idle_is_replaced_without_losing_a_request():
    async def scenario() -> int:
        async with Server() as server, target_of(server) as target:
            await ask(target)
            server.hang_up()
            await asyncio.sleep(0.02)
            return len(await ask(target))

    assert asyncio.run(scenario()) == 3


def test_a_request_that_meets_a_closing_connection_is_sent_on_a_fresh_one():
    async def close(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def scenario() -> int:
        async with Server(whole, close) as server, target_of(server) as target:
            await ask(target)
            return len(await ask(target))

    assert asyncio.run(scenario()) == 3


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (HEAD + chunk(FIRST), "mid-answer"),
        (HEAD + b"zz\r\n", "not a length"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + FIRST, "broke off"),
        (b"\x00\xff nonsense", "not an HTTP"),
        (HEAD + chunk(b"\xff\xfe\x00") + b"0\r\n\r\n", "broke off"),
    ],
)
def test_a_broken_answer_of_a_living_server_is_a_refused_request(said, reason):
    async def break_off(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async def scenario() -> None:
        async with Server(break_off) as server, target_of(server) as target:
            await ask(target)

    with pytest.raises(RequestRefused, match=reason):
        asyncio.run(scenario())


def test_silence_ends_a_request_and_not_the_measurement():
    async def say_nothing(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(FIRST))

    async def scenario() -> int:
        async with (
            Server(say_nothing) as server,
            target_of(server, idle_timeout_s=0.05) as target,
        ):
            with pytest.raises(RequestRefused, match="no byte for"):
                await ask(target)
            return len(await ask(target))

    assert asyncio.run(scenario()) == 3


def test_done_ends_an_answer_even_if_the_server_never_ends_its_body(monkeypatch):
    monkeypatch.setattr("autotune.load.http_target._DRAIN_S", 0.05)

    async def never_end(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(FIRST) + chunk(LAST))

    async def scenario() -> tuple[int, int]:
        async with Server(never_end) as server, target_of(server) as target:
            return len(await ask(target)), len(await ask(target))

    assert asyncio.run(scenario()) == (3, 3)


def test_a_server_that_is_gone_is_a_dead_engine():
    async def scenario() -> None:
        async with Server() as server, target_of(server) as target:
            await ask(target)
            server._server.close()
            server.hang_up()
            await asyncio.sleep(0.02)
            await ask(target)

    with pytest.raises(EngineDied, match="gone or unhealthy"):
        asyncio.run(scenario())


def test_nobody_listening_is_said_before_anything_is_measured():
    async def scenario() -> None:
        async with HttpTarget("http://127.0.0.1:1", model="m"):
            pass

    with pytest.raises(EngineDied, match="is the server up"):
        asyncio.run(scenario())


def test_an_abandoned_answer_takes_its_connection_with_it():
    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(FIRST))

    async def scenario() -> int:
        async with Server(slow) as server, target_of(server) as target:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await ask(target)
            return len(await ask(target))

    assert asyncio.run(scenario()) == 3


def test_a_long_answer_is_read_to_its_last_token():
    async def long(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for count in range(1, 60):
            event = b'data: {"choices":[{"text":"a"}],"usage":{"completion_tokens":%d}}'
            writer.write(chunk(event % count + b"\n\n"))
            await asyncio.sleep(0)
        writer.write(chunk(LAST.replace(b'":2', b'":60')) + b"0\r\n\r\n")

    async def scenario() -> list[Chunk]:
        async with Server(long) as server, target_of(server) as target:
            return await ask(target)

    chunks = asyncio.run(scenario())

    assert sum(piece.token_count for piece in chunks) == 60


def test_only_http_addresses_can_be_travelled_to():
    async def scenario() -> None:
        async with StampingTransport() as transport:
            await transport.handle_async_request(httpx.Request("GET", "ftp://here/"))

    with pytest.raises(httpx.UnsupportedProtocol):
        asyncio.run(scenario())
