"""Every word written to file descriptors 1 and 2 goes to a log; the terminal stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


STDOUT, STDERR = 1, 2


def duplicate_terminal() -> tuple[TextIO, TextIO]:
    """Handles on what standard output and error were before any capture."""
    sys.stdout.flush()
    sys.stderr.flush()
    out = os.fdopen(os.dup(STDOUT), "w", buffering=1)
    return out, os.fdopen(os.dup(STDERR), "w", buffering=1)


@contextmanager
def captured(log_path: Path) -> Iterator[None]:
    """Append all output of this process and its children to ``log_path``.

    Children keep the log they were born with, so an engine that outlives the
    block still writes to its own log.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(STDOUT), os.dup(STDERR)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _flush()
        os.dup2(log, STDOUT)
        os.dup2(log, STDERR)
        yield
    finally:
        _flush()
        os.dup2(kept[0], STDOUT)
        os.dup2(kept[1], STDERR)
        for descriptor in (log, *kept):
            os.close(descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
