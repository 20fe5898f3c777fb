"""``CUDA_VISIBLE_DEVICES`` and all devices in, those a process may use out."""

from __future__ import annotations

from collections.abc import Sequence


VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_positions(
    setting: str | None, uuids: Sequence[str], *, parts: Sequence[str] = ()
) -> tuple[int, ...]:
    """Positions in ``uuids`` followed by ``parts``, of what is visible, in order.

    An unset variable shows all; an empty one shows none. Entries are numbers or
    UUIDs, which may be cut short while they stay unique. As in CUDA, the first
    entry that names no device hides itself and everything after it, and a device
    named twice hides all. Numbers count whole devices only, never ``parts``.
    """
    if setting is None:
        return tuple(range(len(uuids)))
    chosen: list[int] = []
    for entry in setting.split(","):
        position = _position(entry.strip(), [*uuids, *parts], whole=len(uuids))
        if position is None:
            break
        if position in chosen:
            return ()
        chosen.append(position)
    return tuple(chosen)


def _position(entry: str, uuids: Sequence[str], *, whole: int) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) < whole else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    found = [i for i, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None
