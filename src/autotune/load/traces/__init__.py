"""Recorded traffic: a file in, columns of requests and a tally of odd rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO
from zlib import crc32

from autotune.domain.workload import RequestShape, Segment


Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Columns:
    """Requests side by side: entry i of each column belongs to the same request.

    Attributes:
        prompt_tokens: Length of each prompt.
        output_tokens: Tokens generated for it.
        times_s: When it came, on the trace's own clock; None without times.
        shared_tokens: Leading prompt tokens that an earlier request of the file had
            too; None where the format says nothing of contents.
        segments: What each prompt is made of; None where nothing is known.
        block_ids: Names of the prompt's blocks in order, in place of segments.
        block_tokens: Tokens of each such block but the last.
    """

    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    times_s: Sequence[float] | None = None
    shared_tokens: Sequence[int] | None = None
    segments: Sequence[tuple[Segment, ...]] | None = None
    block_ids: Sequence[Sequence[int]] | None = None
    block_tokens: int = 0

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def shape(self, index: int, *, number: int, origin_s: float) -> RequestShape:
        """One request; ``number`` names it in the file, time starts at origin."""
        time_s = None if self.times_s is None else self.times_s[index] - origin_s
        return RequestShape(
            segments=self._segments(index, number),
            output_tokens=self.output_tokens[index],
            group=self._group(index, number),
            arrival_s=time_s,
        )

    def _segments(self, index: int, number: int) -> tuple[Segment, ...]:
        if self.segments is not None:
            return self.segments[index]
        if self.block_ids is not None:
            return tuple(self._blocks(index, number))
        return (Segment(f"own{number}", self.prompt_tokens[index]),)

    def _blocks(self, index: int, number: int) -> Iterator[Segment]:
        left = self.prompt_tokens[index]
        for block in (self.block_ids or ())[index]:
            held = min(left, self.block_tokens)
            if held:
                yield Segment(f"block{block}", held)
            left -= held
        if left:
            yield Segment(f"own{number}", left)

    def _group(self, index: int, number: int) -> int:
        """What the prompt begins with, as a number."""
        if self.block_ids is not None and self.block_ids[index]:
            return self.block_ids[index][0]
        if self.segments is not None:
            return crc32(self.segments[index][0].key.encode(errors="replace"))
        return number


@dataclass(slots=True)
class Oddities:
    """What a reader met that it did not expect, counted by reason.

    Attributes:
        skipped: Rows left out.
        noted: Rows kept all the same.
        first_rows: The row, counted from 1, where each reason was met first.
    """

    skipped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    first_rows: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str, *, row: int) -> None:
        """Count a row that is left out."""
        self.skipped[reason] += 1
        self.first_rows.setdefault(reason, row)

    def note(self, reason: str, *, row: int) -> None:
        """Count a row that is odd but kept."""
        self.noted[reason] += 1
        self.first_rows.setdefault(reason, row)


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file.

    Attributes:
        name: For people, and for choosing it by hand.
        claims: Whether a file with this beginning (unpacked) is of the kind.
        read: Its requests, in batches; the encoder turns text into token ids.
    """

    name: str
    claims: Callable[[bytes], bool]
    read: Callable[[BinaryIO, Oddities, Encode | None], Iterator[Columns]]
