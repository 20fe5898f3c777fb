"""A path in, an open trace of a recognised format out."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from autotune.domain.workload import RequestShape
from autotune.errors import InputError
from autotune.load.traces import Columns, Encode, Format, Oddities
from autotune.load.traces.azure import AZURE
from autotune.load.traces.burstgpt import BURSTGPT
from autotune.load.traces.mooncake import MOONCAKE
from autotune.load.traces.own import OWN
from autotune.load.traces.sharegpt import SHAREGPT


# The first that claims a file reads it.
FORMATS: tuple[Format, ...] = (AZURE, BURSTGPT, MOONCAKE, SHAREGPT, OWN)

_HEAD_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Trace:
    """A file of recorded requests that can be read as often as needed.

    Attributes:
        path: The file; gzip is unpacked while it is read.
        format: How it is written.
        encode: Turns its text, if it has any, into token ids.
    """

    path: Path
    format: Format
    encode: Encode | None = field(default=None, repr=False)

    def columns(self, odd: Oddities) -> Iterator[Columns]:
        """Its requests in batches, read from the beginning; odd rows are counted.

        Raises:
            InputError: The file cannot be read, or not as this format.
        """
        try:
            with _open(self.path) as file:
                yield from self.format.read(file, odd, self.encode)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from error
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"cannot read {self.path}: {error}") from error

    def shapes(self, odd: Oddities) -> Iterator[RequestShape]:
        """Its requests one by one, times counted from the first.

        Raises:
            InputError: The file cannot be read, or not as this format.
        """
        number, origin_s = 0, None
        for columns in self.columns(odd):
            if origin_s is None and columns.times_s:
                origin_s = columns.times_s[0]
            for i in range(len(columns)):
                yield columns.shape(i, number=number + i, origin_s=origin_s or 0.0)
            number += len(columns)


def open_trace(
    path: Path, *, format_name: str | None = None, encode: Encode | None = None
) -> Trace:
    """The trace in ``path``; its format is recognised by its beginning unless named.

    Raises:
        InputError: The file cannot be read, or is of no known format.
    """
    if format_name is not None:
        return Trace(path, _named(format_name), encode)
    head = _head(path)
    found = next((f for f in FORMATS if f.claims(head)), None)
    if found is None:
        raise InputError(f"{path}: {_advice(head)}")
    return Trace(path, found, encode)


def _named(name: str) -> Format:
    found = next((f for f in FORMATS if f.name == name), None)
    if found is None:
        raise InputError(f"no format {name!r}; there are: {_names()}")
    return found


def _names() -> str:
    return ", ".join(f.name for f in FORMATS)


def _advice(head: bytes) -> str:
    if not head.strip():
        return "the file is empty"
    if head.startswith(_UTF16):
        return "the file is UTF-16; convert it to UTF-8"
    return (
        "this is none of the formats that can be read "
        f"({_names()}); see docs/workloads.md"
    )


def _head(path: Path) -> bytes:
    try:
        with _open(path) as file:
            return file.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def _open(path: Path) -> BinaryIO:
    """The file, unpacked while it is read if it is gzip."""
    if path.is_dir():
        raise InputError(f"{path} is a directory; give a file")
    with path.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
    if packed:
        return io.BufferedReader(gzip.open(path))
    return path.open("rb")
