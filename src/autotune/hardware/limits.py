"""The control groups of this process in, what a container leaves it out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar


Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container allows; None where it sets no bound.

    Attributes:
        cpu_count: Processors' worth of time, fractions included.
        memory_bytes: Memory before the kernel kills.
    """

    cpu_count: float | None = None
    memory_bytes: int | None = None


def read_limits(root: Path = Path("/")) -> Limits:
    """The tightest bound of this process's groups and all groups above them.

    Both layouts of the kernel are read: version 2 (one tree) and version 1 (a tree
    per resource). What cannot be read sets no bound.
    """
    groups = _groups(root / "proc/self/cgroup")
    mount = root / "sys/fs/cgroup"
    if (mount / "cgroup.controllers").is_file():
        folders = _upwards(mount, groups.get("", "/"))
        return Limits(
            _least([_cpu_v2(f / "cpu.max") for f in folders]),
            _least([_bytes(f / "memory.max") for f in folders]),
        )
    cpu = _upwards(_v1(mount, "cpu"), groups.get("cpu", "/"))
    memory = _upwards(mount / "memory", groups.get("memory", "/"))
    return Limits(
        _least([_cpu_v1(f) for f in cpu]),
        _least([_bytes(f / "memory.limit_in_bytes") for f in memory]),
    )


# Version 1 writes "no bound" as the largest number of whole pages.
_UNBOUNDED_BYTES = 1 << 62


def _groups(path: Path) -> dict[str, str]:
    """Group by controller; version 2 has one group under the empty name."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        found |= dict.fromkeys(controllers.split(","), group)
    return found


def _v1(mount: Path, controller: str) -> Path:
    joined = mount / "cpu,cpuacct"
    return joined if controller == "cpu" and joined.is_dir() else mount / controller


def _upwards(mount: Path, group: str) -> list[Path]:
    """The group's folder and its parents; inside a container often the mount only."""
    parts = [p for p in group.split("/") if p not in ("", "..")]
    return [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _cpu_v2(path: Path) -> float | None:
    quota, _, period = _text(path).strip().partition(" ")
    return _share(quota, period)


def _cpu_v1(folder: Path) -> float | None:
    quota = _text(folder / "cpu.cfs_quota_us").strip()
    return _share(quota, _text(folder / "cpu.cfs_period_us").strip())


def _share(quota: str, period: str) -> float | None:
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _bytes(path: Path) -> int | None:
    written = _text(path).strip()
    if not written.isdecimal() or int(written) >= _UNBOUNDED_BYTES:
        return None
    return int(written)


def _least(bounds: list[Number | None]) -> Number | None:
    return min((b for b in bounds if b is not None), default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
