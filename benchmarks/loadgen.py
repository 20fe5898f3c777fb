"""How truly the load generator reads a mock of known latency, beside plain clients.

A mock server in its own process writes the first token 200 ms after a request and the
others 20 ms apart, and stamps each write; its own lateness is taken out. 8, 32, 64, 128
and 256 streams are kept in flight by our generator, by one plain httpx process and by
one aiohttp process, all with the same request bodies. Streams start evenly spread; a
void reading of ours is retaken in two processes. Only our client tells the mock when it
wrote a request, so only for ours is the mock's delay in reading it (well under 1 ms
unless the box is full) taken out as well. The last line is one JSON object with its
figures, targets and "ok".
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from types import TracebackType
from typing import Self

import aiohttp
import httpx

from autotune.load import Chunk, PlannedRequest
from autotune.load.http_target import encode_body
from autotune.load.mock_server import MockLatency, running_mock
from autotune.load.self_test import Reading, read_streams, read_target


STREAMS = (8, 32, 64, 128, 256)
MUST_BE_VALID = (8, 32, 64)
SHARDS = (1, 2, 2)
ROUNDS = 4
TTFT_BOUND = 0.02
TPOT_BOUND = 0.01
LAST_RETRY_S = 150.0
LATENCY = MockLatency()


class PlainHttpx:
    """What most tools do: one AsyncClient, lines, JSON, then the clock."""

    def __init__(self, base_url: str, *, connections: int) -> None:
        limits = httpx.Limits(max_connections=connections)
        self._url = f"{base_url}/v1/completions"
        self._client = httpx.AsyncClient(limits=limits, timeout=60.0, trust_env=False)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def stream(self, request: PlannedRequest) -> AsyncGenerator[Chunk]:
        """One token per line with text, stamped after it is parsed."""
        body = encode_body(request, model="mock")
        headers = {"content-type": "application/json"}
        async with self._client.stream(
            "POST", self._url, content=body, headers=headers
        ) as response:
            async for line in response.aiter_lines():
                for chunk in _chunks(line.encode()):
                    yield chunk

    async def reset_caches(self) -> bool:
        """There is nothing to forget."""
        return False


class PlainAiohttp:
    """One aiohttp session, read as vLLM's own benchmark client reads."""

    def __init__(self, base_url: str, *, connections: int) -> None:
        self._url = f"{base_url}/v1/completions"
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._connections)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def stream(self, request: PlannedRequest) -> AsyncGenerator[Chunk]:
        """One token per line with text, stamped after it is parsed."""
        if self._session is None:
            raise RuntimeError("not entered")
        body = encode_body(request, model="mock")
        headers = {"content-type": "application/json"}
        async with self._session.post(
            self._url, data=body, headers=headers
        ) as response:
            async for piece in response.content.iter_any():
                for line in piece.splitlines():
                    for chunk in _chunks(line):
                        yield chunk

    async def reset_caches(self) -> bool:
        """There is nothing to forget."""
        return False


def _chunks(line: bytes) -> tuple[Chunk, ...]:
    if not line.startswith(b"data: {"):
        return ()
    payload = json.loads(line[6:])
    if not payload["choices"]:
        return ()
    return (Chunk(received_s=time.perf_counter(), token_count=1),)


async def _read_plain(
    target: PlainHttpx | PlainAiohttp, base_url: str, streams: int
) -> Reading:
    async with target:
        return await read_target(
            target, base_url, streams, rounds=ROUNDS, latency=LATENCY
        )


def read_ours(base_url: str, streams: int, *, until_s: float) -> list[Reading]:
    """Attempts until one is valid: first one process, then two."""
    attempts: list[Reading] = []
    for shards in SHARDS:
        attempts.append(
            asyncio.run(
                read_streams(
                    base_url, streams, shards=shards, rounds=ROUNDS, latency=LATENCY
                )
            )
        )
        if attempts[-1].void is None or time.monotonic() > until_s:
            break
    return attempts


def _row(client: str, reading: Reading) -> dict[str, object]:
    return {
        "client": client,
        "streams": reading.streams,
        "processes": reading.shards,
        "requests": len(reading.timings),
        "ttft_p50_ms": round(reading.ttft_p50_s * 1e3, 2),
        "ttft_p95_ms": round(reading.ttft_p95_s * 1e3, 2),
        "tpot_ms": round(reading.tpot_s * 1e3, 3),
        "tokens_per_s": round(reading.tokens_per_s),
        "lag_p99_ms": round(reading.lag.p99_s * 1e3, 2),
        "lag_max_ms": round(reading.lag.max_s * 1e3, 2),
        "void": reading.void,
    }


def _true(reading: Reading) -> bool:
    ttfts = (reading.ttft_p50_s, reading.ttft_p95_s)
    ttft_error = max(abs(t / LATENCY.ttft_s - 1) for t in ttfts)
    tpot_error = abs(reading.tpot_s / LATENCY.itl_s - 1)
    return ttft_error <= TTFT_BOUND and tpot_error <= TPOT_BOUND


def _meets_target(reading: Reading) -> bool:
    if reading.void is not None:
        return reading.streams not in MUST_BE_VALID
    return _true(reading)


def _plain_clients(
    base_url: str, streams: int
) -> tuple[tuple[str, PlainHttpx | PlainAiohttp], ...]:
    return (
        ("httpx", PlainHttpx(base_url, connections=streams)),
        ("aiohttp", PlainAiohttp(base_url, connections=streams)),
    )


def _show(client: str, reading: Reading) -> None:
    verdict = f"void: {reading.void}" if reading.void else "valid"
    print(
        f"{client:>8} {reading.streams:>4} streams  {reading.shards} process(es)  "
        f"TTFT p50 {reading.ttft_p50_s * 1e3:8.2f} p95 {reading.ttft_p95_s * 1e3:8.2f}"
        f" ms  TPOT {reading.tpot_s * 1e3:7.3f} ms  {reading.tokens_per_s:6.0f} tok/s"
        f"  {verdict}",
        flush=True,
    )


def _ask_for_priority() -> int:
    """The generator is measured, not its neighbours; not every user may ask."""
    with suppress(OSError):
        return os.nice(-5)
    return os.nice(0)


def main() -> int:
    niceness = _ask_for_priority()
    rows: list[dict[str, object]] = []
    met: list[bool] = []
    until_s = time.monotonic() + LAST_RETRY_S

    def keep(client: str, reading: Reading) -> None:
        rows.append(_row(client, reading))
        _show(client, reading)

    with running_mock(LATENCY) as base_url:
        for streams in STREAMS:
            attempts = read_ours(base_url, streams, until_s=until_s)
            for attempt in attempts:
                keep("ours", attempt)
            met.append(_meets_target(attempts[-1]))
            for name, plain in _plain_clients(base_url, streams):
                keep(name, asyncio.run(_read_plain(plain, base_url, streams)))
    report = {
        "benchmark": "loadgen",
        "truth": {"ttft_ms": LATENCY.ttft_s * 1e3, "tpot_ms": LATENCY.itl_s * 1e3},
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "cpu_count": os.cpu_count(),
        "niceness": niceness,
        "figures": rows,
        "targets": {
            "must_be_valid": MUST_BE_VALID,
            "ttft_p50_p95_within": TTFT_BOUND,
            "tpot_within": TPOT_BOUND,
            "met_by_streams": dict(zip(map(str, STREAMS), met, strict=True)),
        },
        "ok": all(met),
    }
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
