"""A total error and planned looks in, the level to test at in each look out."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy import optimize, special, stats


_GRID_POINTS = 1001
_FARTHEST_SD = 8.0


@lru_cache(maxsize=64)
def nominal_levels(alpha: float, looks: tuple[int, ...]) -> tuple[float, ...]:
    """One-sided level for each look, so that all of them together spend ``alpha``.

    The spending function is Pocock's, alpha ln(1 + (e - 1) t), at the fraction
    ``t`` of the last look's rounds (Lan and DeMets 1983). Levels come from the sums
    of a standard normal walk, integrated look by look (Armitage, McPherson and Rowe
    1969), and are used with t quantiles (significance-level approach: Jennison and
    Turnbull 2000, section 4.4).

    Args:
        alpha: Probability of ever crossing under no effect, above 0 and below 1/2.
        looks: Numbers of rounds, strictly increasing.
    """
    if not 0 < alpha < 0.5:  # noqa: PLR2004 - a one-sided error below a coin's
        raise ValueError(f"alpha must lie between 0 and 1/2, not {alpha}")
    if not looks or looks[0] < 1 or any(a >= b for a, b in pairwise(looks)):
        raise ValueError(f"looks must be positive and increasing, not {looks}")
    spent = [alpha * _pocock(look / looks[-1]) for look in looks]
    shares = [spent[0], *(b - a for a, b in pairwise(spent))]
    return _levels(shares, looks)


@lru_cache(maxsize=256)
def t_quantile(level: float, freedom: int) -> float:
    """Student's t with ``freedom`` degrees exceeds this with probability ``level``."""
    return float(stats.t.isf(level, freedom))


def _pocock(fraction: float) -> float:
    return math.log1p((math.e - 1) * fraction)


def _levels(shares: list[float], looks: tuple[int, ...]) -> tuple[float, ...]:
    """Carry the density of the walk that has not crossed from look to look."""
    bounds = [float(stats.norm.isf(shares[0])) * math.sqrt(looks[0])]
    floor = -_FARTHEST_SD * math.sqrt(looks[-1])
    grid = np.linspace(floor, bounds[0], _GRID_POINTS)
    density = _normal(grid / math.sqrt(looks[0])) / math.sqrt(looks[0])
    for share, (before, look) in zip(shares[1:], pairwise(looks), strict=True):
        weights = density * _trapezoid(grid)
        step = math.sqrt(look - before)
        bound = _bound(share, grid, weights, step)
        bounds.append(bound)
        ahead = np.linspace(floor, bound, _GRID_POINTS)
        density = _normal((ahead[:, None] - grid) / step) @ weights / step
        grid = ahead
    tops = (b / math.sqrt(look) for b, look in zip(bounds, looks, strict=True))
    return tuple(float(special.ndtr(-top)) for top in tops)


def _bound(share: float, grid: np.ndarray, weights: np.ndarray, step: float) -> float:
    """Where the walk, one ``step`` on, lies above with probability ``share``."""

    def excess(bound: float) -> float:
        return float(weights @ special.ndtr((grid - bound) / step)) - share

    far = float(grid[-1]) + _FARTHEST_SD * step
    return float(optimize.brentq(excess, float(grid[0]), far, xtol=1e-9))


def _normal(values: np.ndarray) -> np.ndarray:
    return np.exp(-(values**2) / 2) / math.sqrt(2 * math.pi)


def _trapezoid(grid: np.ndarray) -> np.ndarray:
    weights = np.full(grid.shape, grid[1] - grid[0])
    weights[[0, -1]] /= 2
    return weights
