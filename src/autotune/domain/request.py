"""What passes between a load and its target: one request out, chunks back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a block, ready to be sent.

    Attributes:
        request_id: The same in every trial for the same place in the workload.
        group: Prompts that share a prefix share a group.
        scheduled_s: When to send it, seconds since the block's start.
        prompt_token_ids: The prompt.
        output_tokens: Tokens to generate, exactly.
    """

    request_id: str
    group: int
    scheduled_s: float
    prompt_token_ids: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Output that arrived together.

    Attributes:
        received_s: ``time.perf_counter()`` at arrival.
        token_count: New output tokens in it.
        prompt_tokens: Prompt length as the engine counted it, once known.
        cached_tokens: Prompt tokens from the prefix cache, once known.
        finish_reason: Set on the last chunk.
    """

    received_s: float
    token_count: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
