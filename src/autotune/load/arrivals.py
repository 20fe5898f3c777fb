"""A rate and a generator in, send times of a block out. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import InputError


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals: exponential gaps."""

    def times_s(
        self, recorded: Sequence[float | None], *, rate_rps: float, draw: random.Random
    ) -> tuple[float, ...]:
        """Send times in seconds."""
        return Gamma(1.0).times_s(recorded, rate_rps=rate_rps, draw=draw)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma-distributed gaps.

    Attributes:
        burstiness: Shape of the distribution, as load generators of the field call
            it: 1 is a Poisson process, less is burstier, more is smoother. The
            coefficient of variation of the gaps is one over its root.
    """

    burstiness: float

    def __post_init__(self) -> None:
        _check_positive("burstiness", self.burstiness)

    def times_s(
        self, recorded: Sequence[float | None], *, rate_rps: float, draw: random.Random
    ) -> tuple[float, ...]:
        """Send times in seconds."""
        scale_s = 1 / (rate_rps * self.burstiness)
        now_s, times = 0.0, []
        for _ in recorded:
            now_s += draw.gammavariate(self.burstiness, scale_s)
            times.append(now_s)
        return tuple(times)


@dataclass(frozen=True, slots=True)
class Constant:
    """Equal gaps."""

    def times_s(
        self,
        recorded: Sequence[float | None],
        *,
        rate_rps: float,
        draw: random.Random,  # noqa: ARG002 - the seam's signature
    ) -> tuple[float, ...]:
        """Send times in seconds."""
        return tuple(i / rate_rps for i in range(len(recorded)))


@dataclass(frozen=True, slots=True)
class Ramp:
    """A Poisson process whose rate grows, or falls, evenly over the block.

    Attributes:
        start: Rate at the beginning, as a multiple of the level's.
        end: Rate when the block should be over, likewise.
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        _check_positive("a ramp's start", self.start)
        _check_positive("a ramp's end", self.end)

    def times_s(
        self, recorded: Sequence[float | None], *, rate_rps: float, draw: random.Random
    ) -> tuple[float, ...]:
        """Send times in seconds.

        Arrivals of a unit-rate process are carried through the inverse of the
        cumulated rate (time change of a Poisson process).
        """
        first, last = self.start * rate_rps, self.end * rate_rps
        duration_s = 2 * max(len(recorded), 1) / (first + last)
        slope = (last - first) / duration_s
        total, times = 0.0, []
        for _ in recorded:
            total += draw.expovariate(1.0)
            times.append(_time_s(total, first=first, slope=slope, end_s=duration_s))
        return tuple(times)


@dataclass(frozen=True, slots=True)
class Replay:
    """Recorded gaps, rescaled.

    Attributes:
        time_scale: Recorded seconds that pass in one; None to stretch the block so
            that its mean rate is the level's.
    """

    time_scale: float | None = None

    def __post_init__(self) -> None:
        if self.time_scale is not None:
            _check_positive("time scale", self.time_scale)

    def times_s(
        self,
        recorded: Sequence[float | None],
        *,
        rate_rps: float,
        draw: random.Random,  # noqa: ARG002 - the seam's signature
    ) -> tuple[float, ...]:
        """Send times in seconds.

        Raises:
            InputError: The requests carry no times.
        """
        known = [t for t in recorded if t is not None]
        if len(known) < len(recorded):
            raise InputError(
                "these requests were recorded without times: choose other arrivals"
            )
        offsets = _offsets_s(known)
        natural = natural_rate_rps(known)
        scale = self.time_scale or (rate_rps / natural if natural else 1.0)
        return tuple(offset / scale for offset in offsets)


def natural_rate_rps(recorded_s: Sequence[float]) -> float:
    """Mean rate at which requests were recorded; 0 if all came at one instant."""
    offsets = _offsets_s(recorded_s)
    return (len(offsets) - 1) / offsets[-1] if offsets and offsets[-1] > 0 else 0.0


def _offsets_s(recorded_s: Sequence[float]) -> list[float]:
    """Seconds after the earliest, never going backwards."""
    latest, offsets = -math.inf, []
    for time_s in recorded_s:
        latest = max(latest, time_s)
        offsets.append(latest - recorded_s[0])
    return offsets


def _time_s(total: float, *, first: float, slope: float, end_s: float) -> float:
    """When ``total`` arrivals are due; after the ramp its last rate goes on."""
    last = first + slope * end_s
    at_end = (first + last) / 2 * end_s
    if total >= at_end:
        return end_s + (total - at_end) / last
    # The root of first*t + slope*t*t/2 = total in the form that has no cancellation.
    return 2 * total / (first + math.sqrt(first * first + 2 * slope * total))


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be more than 0, not {value:g}")
