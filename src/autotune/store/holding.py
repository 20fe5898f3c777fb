"""A study's URL and name in, the right to work on it alone out.

The kernel keeps the lock: a process that is killed outright leaves the study free.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.errors import InputError, StoreUnavailable
from autotune.store.facts import database_file


def lock_file(url: str, study: str) -> Path | None:
    """The file whose lock is the right; None where the database is no file."""
    path = database_file(url)
    return None if path is None else path.with_name(f"{path.name}-{study}.lock")


@contextmanager
def held(url: str, study: str) -> Iterator[None]:
    """Hold ``study`` for the block; of a database server, nothing is held.

    Raises:
        InputError: Another process holds it; says which.
        StoreUnavailable: There is no place for the lock.
    """
    path = lock_file(url, study)
    if path is None:
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error
    try:
        _lock(descriptor, study)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, study: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        raise InputError(
            f"study {study!r} is being worked on by another process "
            f"({holder or 'just started'}); wait for it, or give another --study"
        ) from error
