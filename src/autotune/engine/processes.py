"""Processes an engine leaves behind: found by descent, ended by recorded pid."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from multiprocessing import resource_tracker

import psutil


def descendants() -> frozenset[int]:
    """Pids of all processes below this one, at any depth.

    Not Python's own resource tracker: the first spawn starts it, it ignores SIGTERM
    and lives as long as this process, so waiting for it would be in vain.
    """
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
    below = psutil.Process().children(recursive=True)
    return frozenset(p.pid for p in below if p.pid != tracker)


def wait_until_gone(pids: Iterable[int], *, deadline_s: float) -> frozenset[int]:
    """Wait for ``pids`` to end; those that are still there past the deadline."""
    until = time.monotonic() + deadline_s
    left = frozenset(p for p in pids if _alive(p))
    while left and time.monotonic() < until:
        time.sleep(0.02)
        left = frozenset(p for p in left if _alive(p))
    return left


def end(pids: Iterable[int], *, grace_s: float = 2.0) -> None:
    """SIGTERM, then SIGKILL past the grace, exactly these processes."""
    alive = [p for p in pids if _alive(p)]
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid in alive:
            _send(pid, sign)
        alive = list(wait_until_gone(alive, deadline_s=grace_s))
        if not alive:
            return


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _send(pid: int, sign: signal.Signals) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return
