"""Prompts as chains of names in, how far each repeats an earlier one out."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Sequence


class Seen:
    """Names met so far, in a fixed amount of memory.

    One byte for each of 2**25 slots: exact for names that are numbers below
    33,554,432, as recorded traces count them; others share slots now and then, which
    can only overstate what is shared.
    """

    SLOTS = 1 << 25

    def __init__(self) -> None:
        # Pages of an anonymous map cost nothing until a name falls into them.
        self._slots = mmap.mmap(-1, self.SLOTS)

    def leading(self, names: Sequence[int]) -> int:
        """How many names from the first on were met before; all are met now."""
        slots, mask = self._slots, self.SLOTS - 1
        count = 0
        for name in names:
            if not slots[name & mask]:
                break
            count += 1
        for name in names[count:]:
            slots[name & mask] = 1
        return count


def number_of_name(name: str) -> int:
    """A number that stands for ``name`` in every run."""
    return zlib.crc32(name.encode(errors="replace"))
