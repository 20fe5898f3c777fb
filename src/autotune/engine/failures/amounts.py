"""A failure's words in, the amounts they state out, in bytes and tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


UNIT_BYTES: Final = {
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
MOST_BYTES: Final = 2**60
_SIZE = (
    r"(?P<{0}>-?\d[\d,]{{0,20}}(?:\.\d{{1,9}})?)\s?(?P<{0}_unit>[KMGT]?i?B(?:ytes?)?)?"
)


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a failure says of memory; None where it does not say.

    Attributes:
        asked_bytes: What was asked for at once.
        free_bytes: What was there.
        needed_bytes: What would suffice.
        shortfall_bytes: ``needed_bytes`` minus what was there, where that is positive
            (rounded figures may hide it, and a fragmented pool may refuse less).
        others_bytes: Device memory that neither this process nor nobody holds.
        total_bytes: The device's capacity.
        max_model_len: Longest sequence that would fit, as the engine estimates.
    """

    asked_bytes: int | None = None
    free_bytes: int | None = None
    needed_bytes: int | None = None
    shortfall_bytes: int | None = None
    others_bytes: int | None = None
    total_bytes: int | None = None
    max_model_len: int | None = None


def _sized(text: str) -> re.Pattern[str]:
    """``{name}`` in ``text`` becomes an amount with its unit."""
    return re.compile(
        re.sub(r"\{(\w+)\}", lambda m: _SIZE.format(m[1]), text), re.IGNORECASE
    )


# First match of each kind counts. The names are fields of ``Amounts`` and ``own``.
_STATED: Final = (
    # The caching allocator of a device.
    _sized(r"tried to allocate {asked}"),
    _sized(r"(?:total )?capacity of {total}"),
    _sized(r"of which {free} is free"),
    _sized(r"{free} free;"),
    _sized(r"this process has {own} memory in use"),
    _sized(r"of the allocated memory {pool} is allocated by"),
    # The allocator of the host.
    _sized(r"you tried to allocate {asked} ?bytes"),
    # One request does not fit the KV cache.
    _sized(r"\(?{asked} KV cache is needed"),
    _sized(r"available KV cache memory \(?{free}"),
    # Somebody else holds the device.
    _sized(r"free memory on device[^(\n]{0,40}\({free}/{total}\)"),
    _sized(r"available memory[^(\n]{0,40}\({free}/{total}\)"),
    _sized(r"requested memory[^(\n]{0,40}\({asked}\)"),
    _sized(r"desired (?:GPU|XPU|device)? ?memory utilization \([\d.]+, {asked}\)"),
)
_MAX_LEN = re.compile(
    r"(?:estimated maximum (?:model )?length is|stored in (?:the )?KV cache \()"
    r"\s?(\d[\d,]{0,15})",
    re.IGNORECASE,
)


def amounts(text: str) -> Amounts:
    """Amounts stated in ``text``; absent ones stay None, and nothing raises."""
    found: dict[str, int] = {}
    for pattern in _STATED:
        if match := pattern.search(text):
            for name in pattern.groupindex:
                if not name.endswith("_unit") and name not in found:
                    # A pair shares one unit: "(78.77/139.8 GiB)".
                    unit = match[f"{name}_unit"] or match[match.lastgroup or 0]
                    _keep(found, name, match[name], unit)
    length = _MAX_LEN.search(text)
    asked, free = found.get("asked") or None, found.get("free")
    short = None if asked is None or free is None else asked - free
    return Amounts(
        asked_bytes=asked,
        free_bytes=free,
        needed_bytes=asked,
        shortfall_bytes=short if short and short > 0 else None,
        others_bytes=_others(found),
        total_bytes=found.get("total"),
        max_model_len=int(length[1].replace(",", "")) if length else None,
    )


def _keep(found: dict[str, int], name: str, number: str, unit: str) -> None:
    scale = UNIT_BYTES.get(unit.lower(), 1)
    size = round(float(number.replace(",", "")) * scale)
    if abs(size) <= MOST_BYTES:
        found[name] = max(size, 0)


def _others(found: dict[str, int]) -> int | None:
    """Total less free less own; own is the larger of two statements about it.

    Inside a container the driver may report 0 bytes for this process while the
    allocator knows better.
    """
    if "total" not in found or "free" not in found or "own" not in found:
        return None
    own = max(found["own"], found.get("pool", 0))
    return max(found["total"] - found["free"] - own, 0)
