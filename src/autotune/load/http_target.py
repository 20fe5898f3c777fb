"""Planned requests to an OpenAI server, chunks stamped at byte arrival back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Literal, Self

import httpx

from autotune.errors import EngineDied, InputError, RequestRefused
from autotune.load import Chunk, PlannedRequest
from autotune.load.sse import SseEvent, SseParser, read_delta
from autotune.load.tally import Tally
from autotune.load.transport import StampedBody, StampingTransport


Api = Literal["completions", "chat"]
Dialect = Literal["vllm", "openai"]

_PATHS: Mapping[Api, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
}
_DRAIN_S = 0.5
_PROBE_S = 5.0


def encode_body(
    request: PlannedRequest,
    *,
    model: str,
    api: Api = "completions",
    dialect: Dialect = "vllm",
    decode: Callable[[tuple[int, ...]], str] | None = None,
) -> bytes:
    """The JSON body that asks for exactly ``request.output_tokens`` tokens.

    Completions get token ids, so that the server's prompt has the planned length;
    chat gets ``decode``'s text and the template's tokens on top. Sampling is stated
    (temperature 0), because a model's own generation config would otherwise decide.
    The ``vllm`` dialect also pins the output length, keeps special tokens visible
    and asks for usage in every event; ``openai`` leaves out what others may refuse.

    Raises:
        InputError: Chat was asked for without ``decode``.
    """
    body: dict[str, object] = {
        "model": model,
        "max_tokens": request.output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": request.request_id,
    }
    if dialect == "vllm":
        body |= {
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "min_tokens": request.output_tokens,
            "ignore_eos": True,
            "skip_special_tokens": False,
        }
    return json.dumps(body | _prompt(request, api=api, decode=decode)).encode()


def _prompt(
    request: PlannedRequest,
    *,
    api: Api,
    decode: Callable[[tuple[int, ...]], str] | None,
) -> dict[str, object]:
    if api == "completions":
        return {"prompt": request.prompt_token_ids}
    if decode is None:
        raise InputError("chat needs text: give a decoder of prompt token ids")
    text = decode(request.prompt_token_ids)
    return {"messages": [{"role": "user", "content": text}]}


class HttpTarget:
    """An endpoint that speaks the OpenAI protocol; an async context manager.

    Args:
        base_url: Scheme, host and port, with or without ``/v1``.
        model: The served model's name.
        api: Which of the two endpoints is driven.
        dialect: Whether vLLM's own request fields may be used.
        connections: Opened before the first request: as many as run at once.
        decode: Prompt token ids to text, for ``chat``.
        headers: Sent with every request, such as an authorisation.
        transport: How bytes travel; the stamping transport unless a test says so.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        api: Api = "completions",
        dialect: Dialect = "vllm",
        connections: int = 1,
        decode: Callable[[tuple[int, ...]], str] | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._root = parse_base_url(base_url)
        self._model = model
        self._api: Api = api
        self._dialect: Dialect = dialect
        self._connections = connections
        self._decode = decode
        self._headers = _request_headers(self._root, headers or {})
        self._transport = transport or StampingTransport()
        self._url = self._root.copy_with(path=_join(self._root, _PATHS[api]))

    async def __aenter__(self) -> Self:
        try:
            await self.warm(self._connections)
        except BaseException:
            await self._transport.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.aclose()

    async def warm(self, connections: int) -> None:
        """Have ``connections`` open, so that none is set up inside a measurement.

        Raises:
            EngineDied: Nothing listens there.
        """
        if not isinstance(self._transport, StampingTransport):
            return
        try:
            await self._transport.warm(self._url, connections=connections)
        except httpx.TransportError as error:
            raise EngineDied(f"{self._root}: {error}; is the server up?") from error

    def stream(self, request: PlannedRequest) -> AsyncGenerator[Chunk]:
        """Send ``request`` now and yield its output as it arrives.

        Raises:
            RequestRefused: The server answered with an error, or not to the end.
            EngineDied: The server is gone, or says that its engine is.
        """
        return self.exchange(self.body(request))

    def body(self, request: PlannedRequest) -> bytes:
        """The body that ``stream`` would send."""
        return encode_body(
            request,
            model=self._model,
            api=self._api,
            dialect=self._dialect,
            decode=self._decode,
        )

    async def exchange(self, body: bytes) -> AsyncGenerator[Chunk]:
        """Send an encoded ``body``; otherwise as ``stream``."""
        tally = Tally()
        try:
            response = await self._post(self._url, body)
            try:
                await _check_status(response)
                async with aclosing(_events(response, tally)) as events:
                    async for received_s, event in events:
                        for chunk in _read(event, tally, received_s=received_s):
                            yield chunk
            finally:
                await response.aclose()
        except _ServerFault as fault:
            raise await self._blame(str(fault)) from fault
        except httpx.TransportError as error:
            # An answer that is already whole is not spoilt by how it was closed.
            if not tally.done:
                raise await self._blame(_describe(error)) from error
        missing = tally.missing()
        if missing:
            raise await self._blame(missing)
        yield tally.closing()

    async def reset_caches(self) -> bool:
        """Forget cached prefixes through vLLM's ``/reset_prefix_cache``.

        vLLM offers the route only to servers started with ``VLLM_SERVER_DEV_MODE=1``,
        and answers that it could not while requests still hold blocks.
        """
        url = self._root.copy_with(path=_join(self._root, "/reset_prefix_cache"))
        try:
            response = await self._post(url, b"")
            try:
                said = await response.aread()
            finally:
                await response.aclose()
        except httpx.TransportError:
            return False
        return response.is_success and b"false" not in said.lower()

    async def _post(self, url: httpx.URL, body: bytes) -> httpx.Response:
        length = str(len(body))
        headers = [*self._headers, ("content-length", length)]
        request = httpx.Request("POST", url, headers=headers, content=body)
        return await self._transport.handle_async_request(request)

    async def _blame(self, reason: str) -> RequestRefused | EngineDied:
        """Ask the server whether it lives: its engine, or one request, has failed."""
        if await self._lives():
            return RequestRefused(f"{self._url}: {reason}")
        return EngineDied(f"{self._root}: {reason}; the server is gone or unhealthy")

    async def _lives(self) -> bool:
        url = self._root.copy_with(path=_join(self._root, "/health"))
        request = httpx.Request("GET", url, headers=self._headers)
        try:
            async with asyncio.timeout(_PROBE_S):
                response = await self._transport.handle_async_request(request)
                await response.aclose()
        except (httpx.TransportError, TimeoutError):
            return False
        # A server without the route is alive; 5xx is vLLM's word for a dead engine.
        return response.status_code < httpx.codes.INTERNAL_SERVER_ERROR


class _ServerFault(Exception):
    """The server said that it, not the request, went wrong; to be blamed."""


def parse_base_url(base_url: str) -> httpx.URL:
    """The address without its ``/v1``.

    Raises:
        InputError: It is no http or https address.
    """
    try:
        url = httpx.URL(base_url.rstrip("/").removesuffix("/v1"))
    except httpx.InvalidURL as error:
        raise InputError(f"endpoint {base_url!r}: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise InputError(f"endpoint {base_url!r}: want http://host:port")
    return url


def _join(root: httpx.URL, path: str) -> str:
    return root.path.rstrip("/") + path


def _request_headers(
    root: httpx.URL, extra: Mapping[str, str]
) -> list[tuple[str, str]]:
    given = httpx.Headers(extra)
    headers = {
        "host": root.netloc.decode("ascii"),
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
    }
    return [*(p for p in headers.items() if p[0] not in given), *given.items()]


async def _check_status(response: httpx.Response) -> None:
    if response.status_code == httpx.codes.OK:
        return
    said = (await response.aread())[:500].decode("utf-8", "replace")
    text = f"status {response.status_code}: {said}"
    if response.is_server_error:
        raise _ServerFault(text)
    raise RequestRefused(text)


async def _events(
    response: httpx.Response, tally: Tally
) -> AsyncGenerator[tuple[float, SseEvent]]:
    """Events with the arrival of the bytes that completed them."""
    parser = SseParser()
    received_s = 0.0
    async with aclosing(_stamped(response)) as pieces:
        async for received_s, piece in _until_drained(pieces, tally):
            for event in _feed(parser, piece):
                yield received_s, event
    for event in parser.close():
        yield received_s, event


def _feed(parser: SseParser, piece: bytes) -> list[SseEvent]:
    try:
        return parser.feed(piece)
    except ValueError as error:
        raise _ServerFault(str(error)) from error


async def _until_drained(
    pieces: AsyncGenerator[tuple[float, bytes]], tally: Tally
) -> AsyncGenerator[tuple[float, bytes]]:
    """All pieces; once the answer is done, only what comes without much waiting.

    The body's own end is worth a short wait, because only then is the connection
    clean enough to be used again.
    """
    while True:
        try:
            if tally.done:
                async with asyncio.timeout(_DRAIN_S):
                    stamped = await anext(pieces)
            else:
                stamped = await anext(pieces)
        except (StopAsyncIteration, TimeoutError):
            return
        yield stamped


async def _stamped(response: httpx.Response) -> AsyncGenerator[tuple[float, bytes]]:
    body = response.stream
    if isinstance(body, StampedBody):
        async with aclosing(body.stamped()) as pieces:
            async for stamped in pieces:
                yield stamped
        return
    async for piece in response.aiter_bytes():
        yield time.perf_counter(), piece


def _read(event: SseEvent, tally: Tally, *, received_s: float) -> list[Chunk]:
    delta = read_delta(event)
    if delta.error is not None:
        raise _ServerFault(f"an error inside the stream: {delta.error}")
    return tally.add(delta, received_s=received_s)


def _describe(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__
