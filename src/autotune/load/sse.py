"""Server-sent events: bytes of a response body in, what each event says out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple


MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Longer lines or events are no token stream; reading on would only eat memory."""

_REASONING_KEYS = ("reasoning", "reasoning_content")


class SseEvent(NamedTuple):
    """One dispatched event: its ``event:`` name (mostly empty) and its data."""

    name: bytes
    data: bytes


class SseParser:
    """Cuts a byte stream into events, however the bytes were split on the way.

    Lines end in LF, CRLF or CR; comments and unknown fields are skipped. Cutting is
    done on bytes, so a character split between two reads is never decoded in half.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._name = b""
        self._data: list[bytes] = []
        self._held_bytes = 0

    def feed(self, piece: bytes) -> list[SseEvent]:
        """The events that ``piece`` completes.

        Raises:
            ValueError: A line or an event is longer than ``MAX_EVENT_BYTES``.
        """
        if not (self._tail or self._data or self._name):
            event = _only_event(piece)
            if event is not None:
                return [event]
        lines = (self._tail + piece).splitlines(keepends=True)
        # A bare CR at the end may be the first half of a CRLF: wait for the rest.
        unfinished = bool(lines) and not lines[-1].endswith(b"\n")
        self._tail = lines.pop() if unfinished else b""
        if len(self._tail) > MAX_EVENT_BYTES:
            raise ValueError(f"a line of the stream exceeds {MAX_EVENT_BYTES} bytes")
        return [event for line in lines for event in self._take(line)]

    def close(self) -> list[SseEvent]:
        """What a stream that ends without its last empty line still holds."""
        lines = [self._tail, b"\n"]
        self._tail = b""
        return [event for line in lines for event in self._take(line)]

    def _take(self, line: bytes) -> tuple[SseEvent, ...]:
        line = line.rstrip(b"\r\n")
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            self._keep(value)
        elif field == b"event":
            self._name = value
        return ()

    def _keep(self, value: bytes) -> None:
        self._data.append(value)
        self._held_bytes += len(value)
        if self._held_bytes > MAX_EVENT_BYTES:
            raise ValueError(f"an event of the stream exceeds {MAX_EVENT_BYTES} bytes")

    def _dispatch(self) -> tuple[SseEvent, ...]:
        name, lines = self._name, self._data
        self._name, self._data, self._held_bytes = b"", [], 0
        return (SseEvent(name, b"\n".join(lines)),) if lines else ()


def _only_event(piece: bytes) -> SseEvent | None:
    """The event, if ``piece`` is one whole data line: how servers write each token."""
    data = piece[6:-2]
    whole = piece.startswith(b"data: ") and piece.endswith(b"\n\n")
    if not whole or len(data) > MAX_EVENT_BYTES or b"\n" in data or b"\r" in data:
        return None
    return SseEvent(b"", data)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts in the server's words; None is what it did not state."""

    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True, slots=True)
class Delta:
    """What one event of a completion stream says.

    Attributes:
        has_output: It carries text, reasoning or a piece of a tool call.
        has_choices: It speaks of the answer at all; a closing usage event does not.
        token_count: New tokens, where the event lists their ids.
        finish_reason: Why generation ended, if it says so.
        usage: Cumulative counts, if it states any.
        error: The server's complaint inside the stream.
        done: It is the closing ``[DONE]``.
    """

    has_output: bool = False
    has_choices: bool = False
    token_count: int | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    error: str | None = None
    done: bool = False


def read_delta(event: SseEvent) -> Delta:
    """What ``event`` says; never raises, an unreadable event is an error in it."""
    if event.data.strip() == b"[DONE]":
        return Delta(done=True)
    try:
        payload = json.loads(event.data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Delta(error=f"an event is not JSON: {_excerpt(event.data)}")
    if not isinstance(payload, dict):
        return Delta(error=f"an event is not an object: {_excerpt(event.data)}")
    error = _error_in(payload, named_error=event.name == b"error")
    if error is not None:
        return Delta(error=error)
    return _read_payload(payload)


def _read_payload(payload: dict[str, object]) -> Delta:
    choices = _objects(payload.get("choices"))
    has_output, reason, listed = False, None, None
    for choice in choices:
        has_output = has_output or _has_output(choice)
        said, ids = choice.get("finish_reason"), choice.get("token_ids")
        reason = said if isinstance(said, str) and said else reason
        listed = (listed or 0) + len(ids) if isinstance(ids, list) else listed
    return Delta(
        has_output=has_output,
        has_choices=bool(choices),
        token_count=listed,
        finish_reason=reason,
        usage=_usage_in(payload),
    )


def _has_output(choice: dict[str, object]) -> bool:
    if _is_text(choice.get("text")):
        return True
    for key in ("delta", "message"):
        part = choice.get(key)
        if isinstance(part, dict) and _speaks(part):
            return True
    return False


def _speaks(part: dict[str, object]) -> bool:
    if any(_is_text(part.get(k)) for k in ("content", "refusal", *_REASONING_KEYS)):
        return True
    functions = [c.get("function") for c in _objects(part.get("tool_calls"))]
    functions.append(part.get("function_call"))
    return any(
        isinstance(f, dict)
        and (_is_text(f.get("name")) or _is_text(f.get("arguments")))
        for f in functions
    )


def _usage_in(payload: dict[str, object]) -> Usage | None:
    usage = payload.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(cached),
    )


def _error_in(payload: dict[str, object], *, named_error: bool) -> str | None:
    error = payload.get("error")
    if isinstance(error, dict):
        return str(error.get("message") or error)
    if error:
        return str(error)
    if named_error or payload.get("object") == "error":
        return str(payload.get("message") or payload)
    return None


def _objects(value: object) -> list[dict[str, object]]:
    listed = value if isinstance(value, list) else []
    return [item for item in listed if isinstance(item, dict)]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _count(value: object) -> int | None:
    counts = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if counts else None  # type: ignore[return-value]


def _excerpt(data: bytes) -> str:
    text = data[:120].decode("utf-8", "replace")
    return repr(text)
