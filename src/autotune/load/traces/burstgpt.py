"""BurstGPT traces in, columns of requests out.

Columns ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``;
later files add ``Session ID`` and ``Elapsed time``. Times are seconds; no response
tokens mean a failed request. The elapsed time is that of another service and is
not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from autotune.load.traces import Columns, Encode, Format, Oddities
from autotune.load.traces.tables import Layout, claims_table, read_table, seconds


_LAYOUT = Layout("Timestamp", "Request tokens", "Response tokens", seconds)


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


BURSTGPT = Format("burstgpt", claims, read)
