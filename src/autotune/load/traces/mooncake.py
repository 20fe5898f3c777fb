"""Mooncake traces in, columns of requests out.

One JSON object a line: ``timestamp`` in milliseconds, ``input_length``,
``output_length`` and ``hash_ids``, one for each block of 512 prompt tokens; equal ids
mean equal tokens up to the block's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import BinaryIO

from autotune.load.traces import Columns, Encode, Format, Oddities
from autotune.load.traces.jsonl import (
    Numbered,
    number_of,
    read_objects,
    whole_number,
)
from autotune.load.traces.lines import first_line
from autotune.load.traces.screening import objection, sendable
from autotune.load.traces.seen import Seen


BLOCK_TOKENS = 512
NO_TIME = "no timestamp"
NO_LENGTH = "input_length or output_length is no whole number"
BAD_BLOCKS = "hash_ids are no list of whole numbers"
OTHER_COUNT = "hash_ids do not cover the prompt in blocks of 512"

_lengths = itemgetter("input_length", "output_length")
_Row = tuple[float, int, int, list[int]]


def claims(head: bytes) -> bool:
    """Whether the first line has this format's keys."""
    line = first_line(head)
    return line.startswith("{") and all(
        f'"{key}"' in line for key in ("timestamp", "input_length", "output_length")
    )


def read(
    file: BinaryIO,
    odd: Oddities,
    encode: Encode | None = None,  # noqa: ARG001 - the seam's signature: no text here
) -> Iterator[Columns]:
    """The requests of a trace, in batches."""
    seen = Seen()
    for objects in read_objects(file, odd):
        rows = _at_once(objects) or list(_one_by_one(objects, odd))
        if rows:
            yield _columns(rows, seen)


def _at_once(objects: list[Numbered]) -> list[_Row]:
    """Every row, when all are as they should be; else nothing."""
    values = [value for _, value in objects]
    try:
        times = [v["timestamp"] for v in values]
        prompts = [v["input_length"] for v in values]
        outputs = [v["output_length"] for v in values]
        blocks = [v["hash_ids"] for v in values]
    except KeyError:
        return []
    whole = set(map(type, prompts)) | set(map(type, outputs)) == {int}
    timed = set(map(type, times)) == {int}
    listed = set(map(type, blocks)) == {list}
    if not (whole and timed and listed):
        return []
    if set(map(type, chain.from_iterable(blocks))) != {int}:
        return []
    covered = [-(-p // BLOCK_TOKENS) for p in prompts] == list(map(len, blocks))
    if not covered or not sendable(prompts, outputs):
        return []
    return list(zip([t / 1000 for t in times], prompts, outputs, blocks, strict=True))


def _one_by_one(objects: list[Numbered], odd: Oddities) -> Iterator[_Row]:
    for row, value in objects:
        time_ms = number_of(value.get("timestamp"))
        prompt = whole_number(value.get("input_length"))
        output = whole_number(value.get("output_length"))
        blocks = _blocks(value.get("hash_ids", []))
        if time_ms is None:
            odd.skip(NO_TIME, row=row)
        elif prompt is None or output is None:
            odd.skip(NO_LENGTH, row=row)
        elif blocks is None:
            odd.skip(BAD_BLOCKS, row=row)
        elif reason := objection(prompt, output):
            odd.skip(reason, row=row)
        else:
            count = -(-prompt // BLOCK_TOKENS)
            if len(blocks) != count:
                odd.note(OTHER_COUNT, row=row)
            yield time_ms / 1000, prompt, output, blocks[:count]


def _blocks(value: object) -> list[int] | None:
    if not isinstance(value, list) or not all(type(v) is int for v in value):
        return None
    return value


def _columns(rows: Sequence[_Row], seen: Seen) -> Columns:
    times, prompts, outputs, blocks = zip(*rows, strict=True)
    shared = [
        min(seen.leading(ids) * BLOCK_TOKENS, prompt)
        for ids, prompt in zip(blocks, prompts, strict=True)
    ]
    return Columns(
        prompts,
        outputs,
        times,
        shared_tokens=shared,
        block_ids=blocks,
        block_tokens=BLOCK_TOKENS,
    )


MOONCAKE = Format("mooncake", claims, read)
