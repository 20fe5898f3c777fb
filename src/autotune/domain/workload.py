"""What is sent to the engine, and how densely."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests arrive by a Poisson process of ``rate_rps`` per second."""

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


Level = OpenLoop | ClosedLoop


@dataclass(frozen=True, slots=True)
class Workload:
    """A seeded stream of requests, and the levels at which it is sent.

    Attributes:
        name: For tables and the database.
        prompt_tokens: Length of each prompt, in tokens.
        output_tokens: Tokens each request generates, exactly.
        requests: Requests in one block.
        blocks: Blocks kept per level; one more runs before them and is discarded.
        levels: How densely requests arrive, one measurement each.
        seed: Prompts, lengths and arrivals follow from it.
        shared_prefix_tokens: Leading tokens that all prompts of a block share.
    """

    name: str
    prompt_tokens: int
    output_tokens: int
    requests: int
    blocks: int
    levels: tuple[Level, ...]
    seed: int = 0
    shared_prefix_tokens: int = 0

    @property
    def context_tokens(self) -> int:
        """The longest sequence the workload makes, in tokens."""
        return self.prompt_tokens + self.output_tokens
