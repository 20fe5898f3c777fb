"""The load seam: requests go to a target, token arrivals come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from autotune.domain.request import Chunk, PlannedRequest


__all__ = ["Chunk", "PlannedRequest", "Target"]


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
