"""What a launch will need, as values: checks that may fail, and the whole picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


Phase = Literal[
    "memory_not_free",
    "oom_weights",
    "oom_profile",
    "oom_kv_cache",
    "oom_graph_capture",
    "oom_host",
]


@dataclass(frozen=True, slots=True)
class Check:
    """One point where a launch can run out of memory.

    Attributes:
        margin_bytes: Memory there less memory needed; negative means short.
        needed_bytes: Memory needed at that point.
        band_bytes: Half-width of the error band of the margin.
    """

    phase: Phase
    margin_bytes: int
    needed_bytes: int
    band_bytes: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a launch will need on the fullest device, all in bytes.

    Attributes:
        activations_bytes: Peak of the forward pass or of sampling.
        graphs_bytes: What capturing graphs takes.
        overhead_bytes: The process, and buffers that do not depend on the batch.
        kv_bytes: KV memory; negative where the rest alone exceeds the budget.
        kv_tokens: Tokens of full-length requests that fit.
        kv_band_bytes: Half-width of the error band of ``kv_bytes``.
        decisive: The check that fails first, or the narrowest that passes.
    """

    weights_bytes: int
    activations_bytes: int
    graphs_bytes: int
    overhead_bytes: int
    kv_bytes: int
    kv_blocks: int
    kv_tokens: int
    kv_band_bytes: int
    decisive: Check

    @property
    def shortfall_bytes(self) -> int:
        """Missing memory; 0 where it suffices."""
        return max(0, -self.decisive.margin_bytes)

    @property
    def error_band_bytes(self) -> int:
        """Half-width of the error band of the decisive check."""
        return self.decisive.band_bytes

    @property
    def phase(self) -> Phase | None:
        """Where memory will not suffice; None where it will."""
        return self.decisive.phase if self.shortfall_bytes else None

    @property
    def violation(self) -> float:
        """Missing memory over needed memory, to grade a penalty with."""
        return self.shortfall_bytes / max(1, self.decisive.needed_bytes)

    @property
    def reason(self) -> str:
        """One sentence for a person."""
        check, short = self.decisive, self.shortfall_bytes
        room = (
            f"short by {_gib(short)}" if short else f"{_gib(check.margin_bytes)} left"
        )
        band, needed = _gib(check.band_bytes), _gib(check.needed_bytes)
        return f"{check.phase}: {needed} needed, {room} (± {band})"


def _gib(amount: int) -> str:
    return f"{amount / (1 << 30):.2f} GiB"
