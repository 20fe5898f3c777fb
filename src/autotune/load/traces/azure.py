"""Azure LLM inference traces (2023 and 2024) in, columns of requests out.

Columns ``TIMESTAMP,ContextTokens,GeneratedTokens``. The files of 2023 write seven
digits of a second and CRLF; those of 2024 write six, or none when they are zero,
and a time zone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import repeat
from typing import BinaryIO

from autotune.load.traces import Columns, Encode, Format, Oddities
from autotune.load.traces.tables import Layout, claims_table, read_table


_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d):"
    r"(\d\d(?:\.\d*)?)\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_ZONE = re.compile(r"(?:Z|UTC|[+-]\d\d(?::?\d\d)?)$", re.ASCII)
# Where the seconds begin in "2023-11-16 18:17:03.9799600".
_SECONDS = 17


class _Minutes(dict[str, float]):
    """``2023-11-16 18:17:`` to seconds since 1970; each minute is parsed once."""

    def __missing__(self, text: str) -> float:
        if len(self) > 10_000:  # noqa: PLR2004 - a week; memory stays bounded
            self.clear()
        self[text] = start_s = moment_s(text + "00")
        return start_s


_minutes = _Minutes()


def moments_s(texts: Sequence[str]) -> list[float]:
    """Dates with times as seconds since 1970; without a zone they are UTC.

    Raises:
        ValueError: One is no such moment.
    """
    zone = _ZONE.search(texts[0]) if texts else None
    if zone is None:
        times = _same_zone(texts, end=None)
    elif zone[0] in ("+00:00", "Z") and all(map(str.endswith, texts, repeat(zone[0]))):
        times = _same_zone(texts, end=-len(zone[0]))
    else:
        return [moment_s(text) for text in texts]
    if not math.isfinite(sum(times)):
        raise ValueError("a time is not finite")
    return times


def _same_zone(texts: Sequence[str], *, end: int | None) -> list[float]:
    start = _SECONDS
    try:
        return [_minutes[t[:start]] + float(t[start:end]) for t in texts]
    except ValueError:
        return [moment_s(text) for text in texts]


def moment_s(text: str) -> float:
    """One date with time as seconds since 1970, to any number of digits.

    Raises:
        ValueError: The text is no such moment.
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no date with a time")
    day, minute, seconds, zone = match.groups()
    start = datetime.fromisoformat(f"{day}T{minute}").replace(tzinfo=UTC)
    return start.timestamp() + float(seconds) - _offset_s(zone or "")


def _offset_s(zone: str) -> float:
    digits = zone[1:].replace(":", "") if zone[:1] in ("+", "-") else ""
    if not digits:
        return 0.0
    offset = int(digits[:2]) * 3600 + int(digits[2:] or 0) * 60
    return float(-offset if zone[0] == "-" else offset)


_LAYOUT = Layout("TIMESTAMP", "ContextTokens", "GeneratedTokens", moments_s)


def claims(head: bytes) -> bool:
    """Whether the first line is this format's header."""
    return claims_table(head, _LAYOUT)


def read(
    file: BinaryIO,
    odd: Oddities,
    encode: Encode | None = None,  # noqa: ARG001 - the seam's signature: no text here
) -> Iterator[Columns]:
    """The requests of a trace, in batches.

    Raises:
        InputError: A column that is needed is not there.
    """
    return read_table(file, odd, _LAYOUT)


AZURE = Format("azure", claims, read)
