"""A level's blocks in, how exactly its figures are known out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from autotune.domain.timing import Block


# Two-sided 95 % quantiles of Student's t by degrees of freedom.
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_Z_95 = 1.959964
# Fewer values have no spread to speak of.
_LEAST_VALUES = 2


@dataclass(frozen=True, slots=True)
class HalfWidths:
    """Half the 95 % t interval over blocks, as a share of the mean over blocks.

    Attributes:
        ttft_p95: Of the blocks' p95 TTFT; None with fewer than two blocks.
        tpot_mean: Of the blocks' mean TPOT; None likewise, and where no answer has
            a TPOT.
    """

    ttft_p95: float | None
    tpot_mean: float | None

    def within(self, bound: float) -> bool:
        """Whether every interval there is is at most ``bound`` wide to each side."""
        if self.ttft_p95 is None or self.ttft_p95 > bound:
            return False
        return self.tpot_mean is None or self.tpot_mean <= bound


def half_widths(blocks: Sequence[Block]) -> HalfWidths:
    """Intervals over the believable blocks.

    The block is the unit, because requests of one block are not independent: they
    share queues and batches.
    """
    believed = [b for b in blocks if b.void is None and b.timings]
    ttfts_s = [_p95([t.ttft_s for t in b.timings]) for b in believed]
    rated = [[t.tpot_s for t in b.timings if t.tpot_s is not None] for b in believed]
    tpots_s = [fmean(tpots) for tpots in rated if tpots]
    return HalfWidths(relative_half_width(ttfts_s), relative_half_width(tpots_s))


def relative_half_width(values: Sequence[float]) -> float | None:
    """t(97.5 %, n - 1) x s / sqrt(n) over the mean; None for fewer than two values."""
    if len(values) < _LEAST_VALUES:
        return None
    spread = stdev(values)
    if spread == 0:
        return 0.0
    mean = abs(fmean(values))
    wide = t_quantile(len(values) - 1) * spread / math.sqrt(len(values))
    return wide / mean if mean else math.inf


def t_quantile(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t with ``freedom`` degrees.

    From a table up to ten, then by the expansion around the normal quantile
    (Abramowitz and Stegun, 26.7.5), which is within 0.003 from there on.
    """
    if freedom <= len(_T_95):
        return _T_95[freedom - 1]
    z = _Z_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def _p95(values: Sequence[float]) -> float:
    """Linear interpolation between neighbours, as in the summaries."""
    ordered = sorted(values)
    place = 0.95 * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
