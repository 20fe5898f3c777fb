"""Processes in, the processor seconds they have used out."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil


def own_cpu_s() -> float:
    """Processor seconds of this process, all threads."""
    return time.process_time()


def cpu_s(pids: Iterable[int]) -> float | None:
    """Processor seconds of ``pids`` together; None when none of them can be read."""
    times = [t for t in map(_times, pids) if t is not None]
    return sum(times) if times else None


def _times(pid: int) -> float | None:
    try:
        spent = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(spent.user + spent.system)
