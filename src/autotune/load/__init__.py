"""The load seam: requests go to a target, token arrivals come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a block, ready to be sent at ``scheduled_s``."""

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


class Target(Protocol):
    """Whatever answers requests: a running engine, or an HTTP endpoint."""

    def stream(self, request: PlannedRequest) -> AsyncIterator[Chunk]:
        """Send ``request`` now and yield its output as it arrives.

        Raises:
            RequestRefused: The target answered with an error.
            EngineDied: The engine behind the target is gone.
        """
        ...

    async def reset_caches(self) -> bool:
        """Forget cached prefixes; False when the target could not."""
        ...
