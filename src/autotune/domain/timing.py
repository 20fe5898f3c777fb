"""What one request took; the only definitions of TTFT and TPOT in the project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Literal, get_args


Ending = Literal["narrow", "most_blocks", "most_seconds", "most_requests", "saturated"]
"""Why a level got no more blocks: its figures were known narrowly enough, a cap was
reached, or the engine did not keep up."""
ENDINGS: tuple[Ending, ...] = get_args(Ending)
ENDED = "ended"
"""The counter of a level's last block that holds its ending's place in ``ENDINGS``."""


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """One answered request; times are monotonic seconds since the block's start.

    Attributes:
        request_id: The same in every trial for the same place in the workload.
        workload: The workload's name.
        level: The level's label.
        block: Index of the block within the level, 0 being the first kept.
        group: Prompts that share a prefix share a group.
        scheduled_s: When the schedule wanted the request sent.
        sent_s: When it was sent.
        first_token_s: When the first non-empty output arrived.
        last_token_s: When the last output token arrived.
        token_offsets_s: Arrival of each output token; tokens that came in one
            chunk share a stamp.
        prompt_tokens: As counted by the engine.
        output_tokens: As counted by the engine.
        cached_tokens: Prompt tokens served from the prefix cache, if known.
        finish_reason: Why generation ended, in the engine's words.
    """

    request_id: str
    workload: str
    level: str
    block: int
    group: int
    scheduled_s: float
    sent_s: float
    first_token_s: float
    last_token_s: float
    token_offsets_s: tuple[float, ...]
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    finish_reason: str | None

    @property
    def ttft_s(self) -> float:
        """Time to first token, from the *scheduled* send: waiting counts."""
        return self.first_token_s - self.scheduled_s

    @property
    def ttft_from_send_s(self) -> float:
        """Time to first token from the actual send, as ``vllm bench serve`` has it."""
        return self.first_token_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None when there was only one.

        (last token - first token) / (output tokens - 1).
        """
        if self.output_tokens < 2:  # noqa: PLR2004 - a rate needs two tokens
            return None
        return (self.last_token_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Inter-token latencies: the gaps between neighbouring token arrivals."""
        stamps = self.token_offsets_s
        return tuple(b - a for a, b in pairwise(stamps))


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A request that was sent and not answered whole; never dropped silently."""

    request_id: str
    workload: str
    level: str
    block: int
    scheduled_s: float
    sent_s: float
    failed_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Block:
    """One repetition of a level: its requests and the engine's counters over it.

    Attributes:
        workload: The workload's name.
        level: The level's label.
        index: Place among the kept blocks; -1 is the discarded warm-up.
        started_at: Wall clock at the block's start, once per block.
        duration_s: From the block's start to its last token.
        timings: Requests answered.
        failures: Requests not answered.
        void: Why the block may not be believed; None when it may.
        counters: Engine counters over the block; what could not be read is None.
    """

    workload: str
    level: str
    index: int
    started_at: datetime
    duration_s: float
    timings: tuple[RequestTiming, ...]
    failures: tuple[RequestFailure, ...] = ()
    void: str | None = None
    counters: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LevelResult:
    """All kept blocks of one workload at one level.

    Attributes:
        workload: The workload's name.
        level: The level's label.
        blocks: In the order they were measured, void ones too.
    """

    workload: str
    level: str
    blocks: tuple[Block, ...]

    @property
    def ended(self) -> Ending | None:
        """Why no more blocks followed; None where something cut the level short."""
        place = self.blocks[-1].counters.get(ENDED) if self.blocks else None
        return None if place is None else ENDINGS[int(place)]

    @property
    def timings(self) -> tuple[RequestTiming, ...]:
        """Every answered request of the believable blocks."""
        return tuple(t for b in self.blocks if b.void is None for t in b.timings)
