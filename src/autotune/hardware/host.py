"""This host without its devices: processor, memory, packages."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import psutil

from autotune.hardware.limits import Limits


_PACKAGES = ("torch", "optuna", "vllm-autotune")


def package_versions() -> dict[str, str]:
    """Versions of the packages that shape numbers, as far as they are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's product name, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (n.partition(":")[2].strip() for n in lines if n.startswith("model name"))
    return next(names, platform.machine())


def cpu_count(limits: Limits) -> int:
    """Processors this process may use: by affinity and by the container's quota."""
    allowed = len(psutil.Process().cpu_affinity() or [0])
    if limits.cpu_count is None:
        return allowed
    return max(1, min(allowed, int(limits.cpu_count)))


def memory_bytes(limits: Limits) -> int:
    """Memory this process may use: the host's, or less where a container says so."""
    host = int(psutil.virtual_memory().total)
    return host if limits.memory_bytes is None else min(host, limits.memory_bytes)
