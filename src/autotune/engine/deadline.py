"""A deadline for blocking code on the main thread."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from autotune.errors import DeadlineExceeded


@contextmanager
def deadline(seconds: float, *, what: str) -> Iterator[None]:
    """Raise ``DeadlineExceeded`` inside the block once ``seconds`` have passed.

    Works through SIGALRM, which interrupts vLLM's blocking wait for its engine
    core; only the main thread may use it.
    """

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise DeadlineExceeded(f"{what} took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
