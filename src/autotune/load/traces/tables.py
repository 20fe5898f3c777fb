"""Comma-separated lines in, columns of numbers out, odd rows counted."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import BinaryIO, TypeVar

from autotune.errors import InputError
from autotune.load.traces import Columns, Oddities
from autotune.load.traces.jsonl import whole_number
from autotune.load.traces.lines import BLANK, Lines, first_line, read_lines
from autotune.load.traces.screening import screen


TOO_FEW_FIELDS = "too few fields"
REPEATED_HEADER = "header again"
BAD_TIME = "unreadable time"
BAD_LENGTH = "length is not a whole number"

T = TypeVar("T")
Parsed = tuple[list[float], list[int], list[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a table keeps what is needed; other columns are ignored.

    Attributes:
        time: Header of the time's column.
        prompt: Header of the prompt's length.
        output: Header of the output's length.
        times_s: Times of a batch in seconds; ValueError if any is unreadable.
    """

    time: str
    prompt: str
    output: str
    times_s: Callable[[Sequence[str]], list[float]]

    @property
    def headers(self) -> tuple[str, str, str]:
        """The headers that must be there."""
        return self.time, self.prompt, self.output


def claims_table(head: bytes, layout: Layout) -> bool:
    """Whether the first line holds the headers of ``layout``."""
    return set(map(_plain, layout.headers)) <= set(_positions(first_line(head)))


def read_table(file: BinaryIO, odd: Oddities, layout: Layout) -> Iterator[Columns]:
    """The requests of a table whose first line that is not blank names its columns.

    Raises:
        InputError: A column that is needed is not there.
    """
    cells: _Cells | None = None
    for lines in read_lines(file, odd):
        batch = lines
        if cells is None:
            batch = _without_leading_blanks(lines, odd)
            if not batch.lines:
                continue
            cells = _cells(batch.lines[0], layout)
            batch = Lines(batch.first_row + 1, batch.lines[1:])
        if batch.lines:
            yield _columns(_parse(cells, batch, odd, layout), odd)
    if cells is None:
        raise InputError("the file is empty")


@dataclass(frozen=True, slots=True)
class _Cells:
    """Positions of time, prompt and output among ``width`` fields."""

    width: int
    positions: tuple[int, int, int]
    header: str


def _cells(header: str, layout: Layout) -> _Cells:
    found = _positions(header)
    missing = [name for name in layout.headers if _plain(name) not in found]
    if missing:
        raise InputError(
            f"no column {', '.join(map(repr, missing))} in the header {header[:80]!r}"
        )
    time, prompt, output = (found[_plain(name)] for name in layout.headers)
    return _Cells(len(_fields(header)), (time, prompt, output), header)


def _positions(header: str) -> Mapping[str, int]:
    return {_plain(name): i for i, name in enumerate(_fields(header))}


def _plain(name: str) -> str:
    """A header without case, spaces and underscores."""
    return re.sub(r"[\s_]+", "", name).casefold()


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _without_leading_blanks(lines: Lines, odd: Oddities) -> Lines:
    for i, line in enumerate(lines.lines):
        if line.strip():
            return Lines(lines.first_row + i, lines.lines[i:])
        odd.skip(BLANK, row=lines.first_row + i)
    return Lines(lines.first_row, [])


def _parse(cells: _Cells, batch: Lines, odd: Oddities, layout: Layout) -> Parsed:
    """The batch at once when all rows are plain, else row by row."""
    try:
        times, prompts, outputs = _plain_columns(cells, batch.lines)
        rows = range(batch.first_row, batch.first_row + len(batch.lines))
        return (
            layout.times_s(times),
            list(map(int, prompts)),
            list(map(int, outputs)),
            rows,
        )
    except ValueError:
        return _parse_rows(cells, batch, odd, layout)


def _plain_columns(cells: _Cells, lines: list[str]) -> tuple[list[str], ...]:
    """The three columns by slicing all fields at once.

    Raises:
        ValueError: A row has another width, or quotes.
    """
    if set(map(str.count, lines, repeat(","))) != {cells.width - 1}:
        raise ValueError("rows of other widths")
    text = ",".join(lines)
    if '"' in text:
        raise ValueError("quoted fields")
    fields = text.split(",")
    return tuple(fields[position :: cells.width] for position in cells.positions)


def _parse_rows(cells: _Cells, batch: Lines, odd: Oddities, layout: Layout) -> Parsed:
    times: list[float] = []
    prompts: list[int] = []
    outputs: list[int] = []
    rows: list[int] = []
    for row, line in enumerate(batch.lines, start=batch.first_row):
        parsed = _parse_row(cells, line, layout)
        if isinstance(parsed, str):
            odd.skip(parsed, row=row)
            continue
        time_s, prompt, output = parsed
        times.append(time_s)
        prompts.append(prompt)
        outputs.append(output)
        rows.append(row)
    return times, prompts, outputs, rows


def _parse_row(
    cells: _Cells, line: str, layout: Layout
) -> tuple[float, int, int] | str:
    """The row's numbers, or why there are none."""
    if not line.strip():
        return BLANK
    if line == cells.header:
        return REPEATED_HEADER
    fields = _fields(line)
    if len(fields) <= max(cells.positions):
        return TOO_FEW_FIELDS
    time, *lengths = (fields[position].strip() for position in cells.positions)
    try:
        time_s = layout.times_s([time])[0]
    except ValueError:
        return BAD_TIME
    prompt, output = map(whole_number, lengths)
    if prompt is None or output is None:
        return BAD_LENGTH
    return time_s, prompt, output


def _columns(parsed: Parsed, odd: Oddities) -> Columns:
    times, prompts, outputs, rows = parsed
    kept = screen(prompts, outputs, rows, odd)
    if kept is None:
        return Columns(prompts, outputs, times)
    return Columns(pick(prompts, kept), pick(outputs, kept), pick(times, kept))


def pick(column: Sequence[T], kept: Sequence[int]) -> Sequence[T]:
    """The entries of ``column`` at ``kept``."""
    return [column[i] for i in kept]


def seconds(texts: Sequence[str]) -> list[float]:
    """Plain numbers of seconds.

    Raises:
        ValueError: One is no finite number.
    """
    times = list(map(float, texts))
    if not math.isfinite(sum(times)):
        raise ValueError("a time is not finite")
    return times
