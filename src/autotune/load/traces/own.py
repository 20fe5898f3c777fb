"""This project's own JSONL in, columns of requests out; and such lines back.

One object a line. The prompt is the first of these that is there: ``segments``
(``[[name, tokens], …]``, equal names mean equal tokens), ``prompt_token_ids``,
``prompt`` (text), ``messages`` (a chat), ``prompt_tokens``. ``output_tokens`` says how
many to generate; ``arrival_s``, in seconds, may be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate, chain
from typing import Any, BinaryIO

from autotune.domain.workload import RequestShape, Segment
from autotune.load.traces import Columns, Encode, Format, Oddities
from autotune.load.traces.jsonl import number_of, read_objects, whole_number
from autotune.load.traces.lines import first_line
from autotune.load.traces.screening import NO_PROMPT, objection
from autotune.load.traces.seen import Seen, number_of_name
from autotune.load.traces.written import estimated_tokens, segment_of


NO_PROMPT_KEY = "no prompt, messages, segments, prompt_token_ids or prompt_tokens"
BAD_PROMPT = "a prompt of another form"
NO_OUTPUT_KEY = "no whole number under output_tokens"
BAD_TIME = "arrival_s is no number"
SOME_TIMES = "no arrival_s, but other rows have one"

_KEYS = ("segments", "prompt_token_ids", "prompt", "messages", "prompt_tokens")
_Row = tuple[tuple[Segment, ...], int, float | None]


def claims(head: bytes) -> bool:
    """Whether the first line is an object."""
    return first_line(head).startswith("{")


def read(
    file: BinaryIO, odd: Oddities, encode: Encode | None = None
) -> Iterator[Columns]:
    """The requests of a file, in batches; times only if the first request has one."""
    seen, timed = Seen(), None
    for objects in read_objects(file, odd):
        rows = []
        for row, value in objects:
            parsed = _row(row, value, encode)
            if isinstance(parsed, str):
                odd.skip(parsed, row=row)
                continue
            timed = parsed[2] is not None if timed is None else timed
            if timed and parsed[2] is None:
                odd.skip(SOME_TIMES, row=row)
                continue
            rows.append(parsed)
        if rows:
            yield _columns(rows, seen, timed=bool(timed))


def _row(row: int, value: Mapping[str, Any], encode: Encode | None) -> _Row | str:
    """The request, or why there is none."""
    segments = _segments(row, value, encode)
    if isinstance(segments, str):
        return segments
    output = _output_tokens(value)
    if output is None:
        return NO_OUTPUT_KEY
    time_s = number_of(value.get("arrival_s"))
    if time_s is None and value.get("arrival_s") is not None:
        return BAD_TIME
    reason = objection(sum(s.token_count for s in segments), output)
    return reason or (segments, output, time_s)


def _segments(
    row: int, value: Mapping[str, Any], encode: Encode | None
) -> tuple[Segment, ...] | str:
    key = next((k for k in _KEYS if value.get(k) is not None), None)
    if key is None:
        return NO_PROMPT_KEY
    prompt, name = value[key], f"own{row}"
    if key == "segments":
        return _named(prompt)
    if key == "prompt_tokens":
        count = whole_number(prompt)
        return (Segment(name, count),) if count is not None else BAD_PROMPT
    if isinstance(prompt, str):
        return (segment_of(name, prompt, encode),)
    if key == "messages":
        return _chat(row, prompt, encode)
    return _ids(name, prompt)


def _named(value: object) -> tuple[Segment, ...] | str:
    if not isinstance(value, list):
        return BAD_PROMPT
    found = []
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 2:  # noqa: PLR2004 - a pair
            return BAD_PROMPT
        count = whole_number(entry[1])
        if not isinstance(entry[0], str) or count is None or count < 1:
            return BAD_PROMPT
        found.append(Segment(entry[0], count))
    return tuple(found)


def _ids(name: str, value: object) -> tuple[Segment, ...] | str:
    if not isinstance(value, list):
        return BAD_PROMPT
    if not all(type(v) is int and v >= 0 for v in value):
        return BAD_PROMPT
    return (Segment(name, len(value), tuple(value)),) if value else NO_PROMPT


def _chat(row: int, value: object, encode: Encode | None) -> tuple[Segment, ...] | str:
    if not isinstance(value, list):
        return BAD_PROMPT
    texts = [m.get("content") if isinstance(m, dict) else None for m in value]
    written = [t for t in texts if isinstance(t, str)]
    if len(written) < len(texts):
        return BAD_PROMPT
    return tuple(
        segment_of(f"own{row}.{i}", text, encode)
        for i, text in enumerate(written)
        if text
    )


def _output_tokens(value: Mapping[str, Any]) -> int | None:
    if value.get("output_tokens") is None and isinstance(value.get("output"), str):
        return estimated_tokens(value["output"])
    return whole_number(value.get("output_tokens"))


def _columns(rows: list[_Row], seen: Seen, *, timed: bool) -> Columns:
    segments, outputs, times = zip(*rows, strict=True)
    return Columns(
        [sum(s.token_count for s in prompt) for prompt in segments],
        outputs,
        [t for t in times if t is not None] if timed else None,
        shared_tokens=[_shared(prompt, seen) for prompt in segments],
        segments=segments,
    )


def _shared(prompt: tuple[Segment, ...], seen: Seen) -> int:
    """Leading tokens met before: names are chained, for only beginnings are shared."""
    names = accumulate(
        (f"{s.key}/{s.token_count}/{s.token_ids or ''}" for s in prompt),
        lambda before, name: f"{number_of_name(before)}/{name}",
    )
    count = seen.leading([number_of_name(name) for name in names])
    return sum(s.token_count for s in prompt[:count])


def line_of(shape: RequestShape) -> str:
    """The request as a line of this format, without its end; no text is kept."""
    fields: dict[str, object] = {}
    if shape.arrival_s is not None:
        fields["arrival_s"] = round(shape.arrival_s, 6)
    fields["prompt_tokens"] = shape.prompt_tokens
    fields["output_tokens"] = shape.output_tokens
    ids = list(chain.from_iterable(s.token_ids for s in shape.segments))
    if len(ids) == shape.prompt_tokens:
        fields["prompt_token_ids"] = ids
    else:
        fields["segments"] = [[s.key, s.token_count] for s in shape.segments]
    return json.dumps(fields)


OWN = Format("own", claims, read)
