"""The strategy seam: what is known in, the next values to try out."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Protocol

from autotune.domain.settings import Value
from autotune.strategy.facts import Fact


__all__ = ["Fact", "Strategy"]


class Strategy(Protocol):
    """Something that proposes."""

    def propose(
        self,
        facts: Sequence[Fact],
        *,
        number: int,
        avoid: Collection[Hashable] = (),
    ) -> Mapping[str, Value]:
        """Values for trial ``number``, by knob, none of them named in ``avoid``.

        Raises:
            Exhausted: Nothing is left to try.
        """
        ...
