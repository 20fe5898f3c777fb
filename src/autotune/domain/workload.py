"""What is sent to the engine, and how densely."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests arrive ``rate_rps`` per second on average, whatever is in flight.

    A Poisson process, unless the workload brings arrivals of its own.
    """

    rate_rps: float

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.rate_rps:g} req/s"


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``concurrency`` requests are always in flight, the next sent on completion."""

    concurrency: int

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.concurrency} at once"


@dataclass(frozen=True, slots=True)
class LoadShare:
    """An open loop at a share of the burst capacity that the reference showed.

    Resolved into an ``OpenLoop`` once the capacity is known, and frozen then.
    """

    share: float

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.share:.0%} of capacity"


Level = OpenLoop | ClosedLoop | LoadShare


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of prompt tokens; within a block equal keys stand for equal tokens.

    Attributes:
        key: What the tokens are drawn from.
        token_count: How many there are.
        token_ids: The tokens themselves where they are known; empty otherwise.
    """

    key: str
    token_count: int
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestShape:
    """A request before its tokens are drawn.

    Attributes:
        segments: The prompt, from its beginning.
        output_tokens: Tokens to generate, exactly.
        group: Prompts that share a prefix share a group.
        arrival_s: When it was recorded, seconds after its trace began, if it was.
    """

    segments: tuple[Segment, ...]
    output_tokens: int
    group: int = 0
    arrival_s: float | None = None

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return sum(s.token_count for s in self.segments)

    @property
    def context_tokens(self) -> int:
        """Prompt and output together, in tokens."""
        return self.prompt_tokens + self.output_tokens


class Source(Protocol):
    """Where requests come from when they are not all alike."""

    @property
    def context_tokens(self) -> int:
        """The longest sequence it can make, in tokens."""
        ...

    def shapes(
        self, count: int, *, block: int, draw: random.Random
    ) -> tuple[RequestShape, ...]:
        """``count`` requests of a block in the order they are sent."""
        ...


class Arrivals(Protocol):
    """How requests are spread over an open loop."""

    def times_s(
        self,
        recorded: Sequence[float | None],
        *,
        rate_rps: float,
        draw: random.Random,
    ) -> tuple[float, ...]:
        """A send time for each entry of ``recorded``, in order, from about zero.

        Only a replay looks at the entries themselves.
        """
        ...


@dataclass(frozen=True, slots=True)
class Workload:
    """A seeded stream of requests, and the levels at which it is sent.

    Attributes:
        name: For tables and the database.
        prompt_tokens: Length of each prompt; unused where a source says it.
        output_tokens: Tokens each request generates, exactly; the same holds.
        requests: Requests in one block, and in the burst that finds the capacity;
            an open loop with ``block_s`` has its own count.
        blocks: Blocks a level has at least; one more runs first and is discarded.
        levels: How densely requests arrive, one measurement each.
        seed: Prompts, lengths and arrivals follow from it.
        shared_prefix_tokens: Leading tokens that all prompts of a block share.
        block_s: How long an open loop's block should offer load; 0 for by count.
        source: Where requests come from; None for all alike.
        arrivals: How an open loop spreads them; None for a Poisson process.
        most_blocks: More follow, up to so many, while figures are not narrowly
            known; a number below ``blocks`` adds none.
    """

    name: str
    prompt_tokens: int
    output_tokens: int
    requests: int
    blocks: int
    levels: tuple[Level, ...]
    seed: int = 0
    shared_prefix_tokens: int = 0
    block_s: float = 0.0
    source: Source | None = None
    arrivals: Arrivals | None = None
    most_blocks: int = 0

    @property
    def context_tokens(self) -> int:
        """The longest sequence the workload makes, in tokens."""
        if self.source is not None:
            return self.source.context_tokens
        return self.prompt_tokens + self.output_tokens

    def requests_at(self, level: Level) -> int:
        """Requests in a block at ``level``."""
        if not isinstance(level, OpenLoop) or not self.block_s:
            return self.requests
        return max(round(level.rate_rps * self.block_s), self.least_requests)

    @property
    def least_requests(self) -> int:
        """An open loop's block has at least so many requests."""
        return min(self.requests, 16)
