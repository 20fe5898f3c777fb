"""Bytes in, numbered batches of text lines out, in bounded memory."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from autotune.load.traces import Oddities


CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 8 << 20
BOM = b"\xef\xbb\xbf"
TOO_LONG = "line longer than 8 MiB"
BLANK = "blank line"


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines without their ends.

    Attributes:
        first_row: Number of the first line in the file, counted from 1.
        lines: The lines; blank ones are still there.
    """

    first_row: int
    lines: list[str]


def read_lines(file: BinaryIO, odd: Oddities) -> Iterator[Lines]:
    """Every line of ``file``; one that is too long is skipped and counted.

    Lines end with LF or CRLF; the last may end with nothing. Bytes that are no
    UTF-8 are replaced.
    """
    row = 1
    for whole in _whole_lines(file):
        block = whole
        if len(block) > LONGEST_LINE_BYTES and block.count(b"\n") <= 1:
            odd.skip(TOO_LONG, row=row)
            row += 1
            continue
        if b"\r" in block:  # looking is much cheaper than replacing nothing
            block = block.replace(b"\r\n", b"\n")
        text = block.decode(errors="replace")
        lines = text.removesuffix("\n").split("\n")
        yield Lines(row, lines)
        row += len(lines)


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Blocks that end where a line ends; an overlong line alone, cut short."""
    held, dropping = b"", False
    chunk = file.read(CHUNK_BYTES).removeprefix(BOM)
    while chunk:
        if dropping:
            end = chunk.find(b"\n") + 1
            chunk, dropping = (chunk[end:], False) if end else (b"", True)
        end = chunk.rfind(b"\n") + 1
        if end:
            yield from _apart(held + chunk[:end], first=len(held) + chunk.find(b"\n"))
            held = chunk[end:]
        else:
            held += chunk
        if len(held) > LONGEST_LINE_BYTES:
            yield held
            held, dropping = b"", True
        chunk = file.read(CHUNK_BYTES)
    if held:
        yield held


def _apart(block: bytes, *, first: int) -> Iterator[bytes]:
    """The block, its first line on its own when that is too long."""
    if first > LONGEST_LINE_BYTES:
        yield block[: first + 1]
        block = block[first + 1 :]
    if block:
        yield block


def first_line(head: bytes) -> str:
    """The first line of ``head`` that is not blank."""
    match = re.search(rb"[^\r\n]*[^\s][^\r\n]*", head.removeprefix(BOM))
    return match[0].decode(errors="replace").strip() if match else ""


def as_file(content: bytes) -> BinaryIO:
    """Bytes as a file."""
    return io.BytesIO(content)
