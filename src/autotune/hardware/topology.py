"""Pairs of devices in, how each is connected out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.hardware.nvml import At, Nvml, number


Path = Literal[
    "same_board", "one_switch", "switches", "host_bridge", "one_socket", "sockets"
]

_PATHS: dict[int, Path] = {
    0: "same_board",
    10: "one_switch",
    20: "switches",
    30: "host_bridge",
    40: "one_socket",
    50: "sockets",
}
_PEER_READ, _PEER_NVLINK = 0, 2
_ALLOWED = 0
_MOST_NVLINKS = 18


@dataclass(frozen=True, slots=True)
class Link:
    """How two devices reach each other.

    Attributes:
        left: Number of the one device.
        right: Number of the other.
        nvlink: Whether NVLink joins them, directly or through switches; None
            where the driver does not say.
        nvlink_count: Active NVLinks of the one that has fewer; 0 without.
        pcie: The path over PCI Express, from near to far; None where unknown.
        peer_access: Whether each may read the other's memory; None where unknown.
    """

    left: int
    right: int
    nvlink: bool | None
    nvlink_count: int
    pcie: Path | None
    peer_access: bool | None


def read_links(nvml: Nvml, devices: Sequence[At]) -> tuple[Link, ...]:
    """One link for every pair of ``devices``."""
    if len(devices) < 2:  # noqa: PLR2004 - a pair needs two
        return ()
    counts = {at: _nvlink_count(nvml, at) for at in devices}
    return tuple(
        _link(nvml, left, right, min(counts[left], counts[right]))
        for left, right in itertools.combinations(devices, 2)
    )


def _link(nvml: Nvml, left: At, right: At, count: int) -> Link:
    joined = _allowed(nvml, left, right, _PEER_NVLINK)
    ancestor = number(nvml.ask("nvmlDeviceGetTopologyCommonAncestor", left, right))
    return Link(
        left=left.index,
        right=right.index,
        nvlink=joined,
        nvlink_count=count if joined else 0,
        pcie=None if ancestor is None else _PATHS.get(ancestor),
        peer_access=_allowed(nvml, left, right, _PEER_READ),
    )


def _allowed(nvml: Nvml, left: At, right: At, what: int) -> bool | None:
    status = number(nvml.ask("nvmlDeviceGetP2PStatus", left, right, what))
    return None if status is None else status == _ALLOWED


def _nvlink_count(nvml: Nvml, at: At) -> int:
    """Active links; the first number that is refused ends the list."""
    count = 0
    for link in range(_MOST_NVLINKS):
        state = number(nvml.ask("nvmlDeviceGetNvLinkState", at, link))
        if state is None:
            break
        count += state == 1
    return count
