"""A distribution and a generator in, lengths in tokens out. Pure."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from autotune.errors import InputError


class Lengths(Protocol):
    """How many tokens; always at least one and never more than ``longest``."""

    @property
    def longest(self) -> int:
        """The greatest length that can be drawn, in tokens."""
        ...

    def draw(self, draw: random.Random) -> int:
        """One length, in tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always ``tokens``."""

    tokens: int

    def __post_init__(self) -> None:
        _check_range(self.tokens, self.tokens)

    @property
    def longest(self) -> int:
        """The greatest length that can be drawn, in tokens."""
        return self.tokens

    def draw(self, draw: random.Random) -> int:  # noqa: ARG002 - the seam's signature
        """The one length there is."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every length from ``low`` to ``high`` is equally likely, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    @property
    def longest(self) -> int:
        """The greatest length that can be drawn, in tokens."""
        return self.high

    def draw(self, draw: random.Random) -> int:
        """One length, in tokens."""
        return draw.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """The logarithm is normal; what falls outside the range is drawn again.

    Attributes:
        median: Median before the range cuts, in tokens.
        sigma: Standard deviation of the natural logarithm.
        low: Shortest, in tokens.
        high: Longest, in tokens.
    """

    median: float
    sigma: float
    low: int = 1
    high: int = 131_072

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if not (self.low <= self.median <= self.high and 0 <= self.sigma < math.inf):
            raise InputError(
                f"lognormal lengths: median {self.median:g} must lie within "
                f"{self.low}..{self.high} and sigma {self.sigma:g} be 0 or more"
            )

    @property
    def longest(self) -> int:
        """The greatest length that can be drawn, in tokens."""
        return self.high

    def draw(self, draw: random.Random) -> int:
        """One length, in tokens.

        The median lies in the range, so at least about half of what a side offers
        is kept; for a very narrow range the last try is clamped.
        """
        length = 0
        for _ in range(64):
            length = round(draw.lognormvariate(math.log(self.median), self.sigma))
            if self.low <= length <= self.high:
                return length
        return min(max(length, self.low), self.high)


@dataclass(frozen=True)
class Observed:
    """Lengths as often as they were seen.

    Attributes:
        counts: How often each length occurred, in ascending order of length.
    """

    counts: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        lengths = [length for length, _ in self.counts]
        if not lengths:
            raise InputError("there is no length to draw from")
        _check_range(lengths[0], lengths[-1])

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Observed:
        """From a histogram."""
        return cls(tuple(sorted(counts.items())))

    @property
    def longest(self) -> int:
        """The greatest length that can be drawn, in tokens."""
        return self.counts[-1][0]

    @cached_property
    def _cumulated(self) -> tuple[int, ...]:
        return tuple(accumulate(count for _, count in self.counts))

    def draw(self, draw: random.Random) -> int:
        """One length, in tokens."""
        rank = draw.randint(1, self._cumulated[-1])
        return self.counts[bisect_left(self._cumulated, rank)][0]


def read_lengths(path: Path) -> Observed:
    """The lengths in a text file, one whole number a line; blank lines are nothing.

    Raises:
        InputError: The file cannot be read, or a line is no length.
    """
    counts: dict[int, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    length = _length(line.strip(), f"{path}, line {number}")
                    counts[length] = counts.get(length, 0) + 1
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read lengths from {path}: {error}") from error
    if not counts:
        raise InputError(f"{path} holds no lengths; write one whole number a line")
    return Observed.of(counts)


def _length(text: str, where: str) -> int:
    length = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004 - longer than any context
    if length < 1:
        raise InputError(f"{where}: {text[:40]!r} is not a length of 1 or more tokens")
    return length


def _check_range(low: int, high: int) -> None:
    if not 1 <= low <= high:
        raise InputError(
            f"lengths from {low} to {high}: write 1 or more, the lower number first"
        )
