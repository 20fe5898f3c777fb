"""Measured points and candidates in; how much each candidate promises out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from autotune.strategy import surrogate
from autotune.strategy.coordinates import Points


Array = NDArray[np.float64]

TRUST = 2.0
"""Exponent of the learnt chance to fit beside the expected improvement: above 1,
because a launch that dies teaches less than one that is measured."""
BLUR = 0.3
"""Deviation added to the learnt boundary, where fitting is +1 and not fitting -1."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """What launches taught, one row each.

    Attributes:
        points: Where, (n, knobs).
        scores: Lower is better, (n,); ignored where nothing was measured.
        violations: Largest constraint value, (n,); positive is infeasible.
        choices: Which columns hold choices, (knobs,).
    """

    points: Points
    scores: Array
    violations: Array
    choices: NDArray[np.bool_]

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Which launches violated nothing and have a finite score, (n,)."""
        feasible: NDArray[np.bool_] = (self.violations <= 0) & np.isfinite(self.scores)
        return feasible


class Ranking:
    """Judges candidates by expected improvement times the learnt chance to fit.

    Attributes:
        origins: The points believed best, best first, to look around.
    """

    def __init__(self, measured: Measurements, *, pending: Points) -> None:
        feasible = measured.feasible
        points = measured.points[feasible]
        targets = level(measured.scores[feasible])
        self._value = surrogate.fit(points, targets, choices=measured.choices)
        believed, _ = self._value.predict(points)
        self._best = float(np.min(believed))
        self.origins: Points = points[np.argsort(believed, kind="stable")[:5]]
        if len(pending):
            self._value = self._believe(points, targets, pending)
        self._boundary = None if feasible.all() else _boundary(measured)

    def promise(self, points: Points) -> Array:
        """Logarithm of the weighted expected improvement at ``points``, (m,)."""
        mean, deviation = self._value.predict(points)
        promise = log_expected_improvement(mean, deviation, best=self._best)
        if self._boundary is None:
            return promise
        height, doubt = self._boundary.predict(points)
        weighted: Array = promise + TRUST * log_ndtr(height / np.hypot(doubt, BLUR))
        return weighted

    def _believe(
        self, points: Points, targets: Array, pending: Points
    ) -> surrogate.Surrogate:
        """The value model as if what still runs came out as it expects."""
        expected, _ = self._value.predict(pending)
        return surrogate.fit(
            np.concatenate([points, pending]),
            np.concatenate([targets, expected]),
            choices=self._value.choices,
        )


def by_violation(measured: Measurements, candidates: Points) -> Array:
    """Promise of ``candidates`` while nothing is feasible: least expected violation."""
    model = surrogate.fit(
        measured.points, measured.violations, choices=measured.choices
    )
    mean, deviation = model.predict(candidates)
    return deviation - mean


def level(scores: Array) -> Array:
    """Logarithms where all scores are positive: ratios count, not differences."""
    return np.log(scores) if np.all(scores > 0) else scores


def log_expected_improvement(mean: Array, deviation: Array, *, best: float) -> Array:
    """Logarithm of the expected gain below ``best`` (Jones et al., 1998, eq. 15)."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    gain: Array = deviation * (density + z * ndtr(z))
    logarithm: Array = np.log(np.maximum(gain, 1e-300))
    return logarithm


def _boundary(measured: Measurements) -> surrogate.Surrogate:
    labels = np.where(measured.violations <= 0, 1.0, -1.0)
    return surrogate.fit(measured.points, labels, choices=measured.choices)
