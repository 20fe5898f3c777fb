"""A server of exactly known latency: requests in, tokens stamped as they leave out.

Run as ``python -m autotune.load.mock_server``. It answers completions and chat with
one token per event: the first ``--ttft-ms`` after the request's last byte arrived,
the others ``--itl-ms`` apart, on a schedule that does not drift. Each event carries
``stamp``, the system-wide monotonic clock just before the write, and ``due``, when it
should have left; ``GET /ledger`` returns both for every answer since the last call,
so that the mock's own lateness can be taken out of a client's error.
It ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import cast

from autotune.errors import HostUnfit
from autotune.load.transport import WRITTEN_HEADER


@dataclass(frozen=True, slots=True)
class MockAnswer:
    """What the mock did for one request; ``CLOCK_MONOTONIC`` seconds.

    Attributes:
        user: The request's ``user`` field, which names it.
        written_s: When the client wrote the request, if it said so; otherwise
            ``received_s``.
        received_s: When the request's last byte was read.
        due_s: When each token should have been written.
        stamp_s: When each token was written.
    """

    user: str
    written_s: float
    received_s: float
    due_s: tuple[float, ...]
    stamp_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MockLatency:
    """The truth a client should find; seconds."""

    ttft_s: float = 0.2
    itl_s: float = 0.02


class MockConnection(asyncio.Protocol):
    """One client connection; answers one request at a time."""

    def __init__(self, latency: MockLatency, ledger: list[MockAnswer]) -> None:
        self._latency = latency
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._written_s = 0.0
        self._wire: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        self._wire = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Stop writing."""
        self._wire = None

    def data_received(self, data: bytes) -> None:
        """Answer a request as soon as its last byte is here."""
        received_s = time.perf_counter()
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        length = int(_header(head, b"content-length") or 0)
        if end and len(rest) >= length:
            self._buffer = rest[length:]
            self._written_s = float(_header(head, WRITTEN_HEADER) or received_s)
            self._answer(head.split(b" ", 2)[1], rest[:length], received_s=received_s)

    def _answer(self, path: bytes, body: bytes, *, received_s: float) -> None:
        if path.endswith(b"/completions"):
            self._stream(json.loads(body), received_s, chat=b"/chat/" in path)
        elif path == b"/ledger":
            answers = [asdict(answer) for answer in self._ledger]
            self._ledger.clear()
            gc.collect()
            self._reply(answers)
        elif path == b"/v1/models":
            self._reply({"object": "list", "data": [{"id": "mock", "object": "model"}]})
        elif path in (b"/health", b"/reset_prefix_cache"):
            self._reply({})
        else:
            self._reply(
                {"error": {"message": "no such route"}}, status=b"404 Not Found"
            )

    def _reply(self, value: object, *, status: bytes = b"200 OK") -> None:
        body = json.dumps(value).encode()
        self._write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (status, len(body), body)
        )

    def _stream(
        self, request: dict[str, object], received_s: float, *, chat: bool
    ) -> None:
        wanted = request.get("max_tokens") or request.get("max_completion_tokens") or 16
        count = int(cast("int", wanted))
        first_s = received_s + self._latency.ttft_s
        due_s = tuple(first_s + i * self._latency.itl_s for i in range(count))
        self._write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        if chat:
            self._event(b'{"choices":[{"delta":{"role":"assistant","content":""}}]}')
        stream = _Stream(request, self._written_s, received_s, due_s, chat=chat)
        self._loop.call_at(due_s[0], self._token, stream)

    def _token(self, stream: _Stream) -> None:
        if self._wire is None:
            return
        self._event(stream.next_event())
        if not stream.whole:
            self._loop.call_at(stream.next_due_s, self._token, stream)
            return
        self._event(stream.usage_event())
        self._write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        self._ledger.append(stream.answer())

    def _event(self, payload: bytes) -> None:
        event = b"data: %b\n\n" % payload
        self._write(b"%x\r\n%b\r\n" % (len(event), event))

    def _write(self, data: bytes) -> None:
        if self._wire is not None:
            self._wire.write(data)


class _Stream:
    """One answer under way."""

    def __init__(
        self,
        request: dict[str, object],
        written_s: float,
        received_s: float,
        due_s: tuple[float, ...],
        *,
        chat: bool,
    ) -> None:
        prompt = request.get("prompt")
        options = request.get("stream_options")
        self._user = str(request.get("user", ""))
        self._prompt_count = len(prompt) if isinstance(prompt, list) else 1
        self._states_usage = (
            isinstance(options, dict) and options.get("continuous_usage_stats") is True
        )
        self._written_s = written_s
        self._received_s = received_s
        self._due_s = due_s
        self._stamp_s: list[float] = []
        self._chat = chat

    @property
    def whole(self) -> bool:
        return len(self._stamp_s) == len(self._due_s)

    @property
    def next_due_s(self) -> float:
        return self._due_s[len(self._stamp_s)]

    def next_event(self) -> bytes:
        due_s, stamp_s = self.next_due_s, time.perf_counter()
        self._stamp_s.append(stamp_s)
        said = b'"delta":{"content":" x"}' if self._chat else b'"text":" x"'
        reason = b'"length"' if self.whole else b"null"
        usage = b',"usage":' + self._usage() if self._states_usage else b""
        # Written by hand: composing JSON from values would cost more than the write.
        return (
            b'{"id":"mock","stamp":%.9f,"due":%.9f,'
            b'"choices":[{"index":0,%b,"finish_reason":%b}]%b}'
            % (stamp_s, due_s, said, reason, usage)
        )

    def usage_event(self) -> bytes:
        return b'{"id":"mock","choices":[],"usage":%b}' % self._usage()

    def answer(self) -> MockAnswer:
        return MockAnswer(
            self._user,
            self._written_s,
            self._received_s,
            self._due_s,
            tuple(self._stamp_s),
        )

    def _usage(self) -> bytes:
        prompt, output = self._prompt_count, len(self._stamp_s)
        return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (
            prompt,
            output,
            prompt + output,
        )


async def serve(*, latency: MockLatency, port: int) -> None:
    """Listen on 127.0.0.1, print the port as JSON, and answer for ever."""
    ledger: list[MockAnswer] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: MockConnection(latency, ledger), "127.0.0.1", port, backlog=1024
    )
    bound = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"port": bound}) + "\n")
    sys.stdout.flush()
    # A collection in mid-stream would be lateness of the mock's own making.
    gc.freeze()
    gc.disable()
    await server.serve_forever()


@contextmanager
def running_mock(latency: MockLatency | None = None) -> Generator[str]:
    """A mock in a process of its own; gives its base URL.

    Raises:
        HostUnfit: The process did not come up.
    """
    latency = latency or MockLatency()
    command = [sys.executable, "-m", "autotune.load.mock_server"]
    options = [f"--ttft-ms={latency.ttft_s * 1e3}", f"--itl-ms={latency.itl_s * 1e3}"]
    with subprocess.Popen(
        [*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise HostUnfit("the mock server has no pipes")
        try:
            line = process.stdout.readline()
            if not line:
                raise HostUnfit("the mock server did not start")
            yield f"http://127.0.0.1:{json.loads(line)['port']}"
        finally:
            process.stdin.close()
            process.terminate()


def read_ledger(text: bytes) -> dict[str, MockAnswer]:
    """What ``GET /ledger`` returned, by the requests' ``user``."""
    return {
        a["user"]: MockAnswer(
            a["user"],
            a["written_s"],
            a["received_s"],
            tuple(a["due_s"]),
            tuple(a["stamp_s"]),
        )
        for a in json.loads(text)
    }


def _header(head: bytes, wanted: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == wanted:
            return value
    return None


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    sys.exit(0)


def main() -> None:
    """Parse the command line and serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=200.0)
    parser.add_argument("--itl-ms", type=float, default=20.0)
    options = parser.parse_args()
    latency = MockLatency(options.ttft_ms / 1e3, options.itl_ms / 1e3)
    server = threading.Thread(
        target=lambda: asyncio.run(serve(latency=latency, port=options.port)),
        daemon=True,
    )
    server.start()
    _end_with_stdin()


if __name__ == "__main__":
    main()
