"""Lines of JSON in, batches of numbered objects out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from autotune.load.traces import Oddities
from autotune.load.traces.lines import BLANK, Lines, read_lines


NOT_JSON = "not JSON"
NOT_AN_OBJECT = "not a JSON object"

Numbered = tuple[int, dict[str, Any]]


def read_objects(file: BinaryIO, odd: Oddities) -> Iterator[list[Numbered]]:
    """The objects of ``file``, one a line; other lines are skipped and counted."""
    for lines in read_lines(file, odd):
        yield _at_once(lines) or list(_one_by_one(lines, odd))


def _at_once(batch: Lines) -> list[Numbered]:
    """All lines parsed together, which is faster; empty when one of them is odd."""
    lines = batch.lines
    if not all(line.startswith("{") and line.endswith("}") for line in lines):
        return []
    try:
        rows = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        return []
    if len(rows) != len(lines):
        return []
    return list(enumerate(rows, start=batch.first_row))


def _one_by_one(batch: Lines, odd: Oddities) -> Iterator[Numbered]:
    for row, line in enumerate(batch.lines, start=batch.first_row):
        if not line.strip():
            odd.skip(BLANK, row=row)
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            odd.skip(NOT_JSON, row=row)
            continue
        if isinstance(value, dict):
            yield row, value
        else:
            odd.skip(NOT_AN_OBJECT, row=row)


def whole_number(value: object) -> int | None:
    """``value`` as a whole number, if it is one; text may spell it."""
    number = number_of(value)
    return int(number) if number is not None and number == int(number) else None


def number_of(value: object) -> float | None:
    """``value`` as a finite number, if it is one; text may spell it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
