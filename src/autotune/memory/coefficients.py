"""What is believed about the engine's memory, with its uncertainty; numbers in and out.

Every amount the engine takes is a feature in bytes times a coefficient whose prior
mean is 1. The belief is a Gaussian over the coefficients; one observed amount
updates it by recursive least squares, so the prior weighs as much as its
variance says, and no observation can make the belief less certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


# Standard deviations of the coefficients before any start was seen here.
PRIOR_DEVIATION: Mapping[str, float] = MappingProxyType(
    {
        "weights": 0.02,
        "fixed": 0.8,
        "forward": 0.4,
        "sampler": 0.25,
        "graphs": 0.25,
        "estimate": 0.4,
        "process": 0.4,
    }
)
NAMES = tuple(PRIOR_DEVIATION)

# What no number of starts takes away: the features are simpler than the engine.
# Read off the starts of one model under different settings.
MISFIT: Mapping[str, float] = MappingProxyType(
    {
        "weights": 0.004,
        "fixed": 0.1,
        "forward": 0.2,
        "sampler": 0.02,
        "graphs": 0.07,
        "estimate": 0.15,
        "process": 0.1,
    }
)

# A coefficient below this would be a claim that the engine needs next to nothing.
_FLOOR = 0.05

Row = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A Gaussian over the coefficients, in the order of ``NAMES``."""

    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    def expect(self, row: Row) -> float:
        """Expected bytes of ``row``: the sum of feature times coefficient."""
        pairs = zip(_vector(row), self.mean, strict=True)
        return sum(feature * max(_FLOOR, mean) for feature, mean in pairs)

    def deviation(self, row: Row) -> float:
        """Standard deviation of that sum, in bytes: of the belief and the misfit."""
        vector = _vector(row)
        belief = max(0.0, _dot(vector, self._spread(vector)))
        misfit = sum((row.get(name, 0.0) * MISFIT[name]) ** 2 for name in NAMES)
        return math.sqrt(belief + misfit)

    def learn(
        self, row: Row, observed_bytes: float, *, noise_bytes: float
    ) -> Coefficients:
        """The belief after the amount of ``row`` was observed.

        Args:
            row: Features of the observed amount, in bytes.
            observed_bytes: What the engine took.
            noise_bytes: Standard deviation of the observation and of the model.
        """
        vector = _vector(row)
        spread = self._spread(vector)
        total = _dot(vector, spread) + noise_bytes**2
        gain = [s / total for s in spread]
        surprise = observed_bytes - _dot(vector, self.mean)
        mean = tuple(m + g * surprise for m, g in zip(self.mean, gain, strict=True))
        covariance = tuple(
            tuple(c - g * s for c, s in zip(line, spread, strict=True))
            for line, g in zip(self.covariance, gain, strict=True)
        )
        return Coefficients(mean, covariance)

    def _spread(self, vector: tuple[float, ...]) -> list[float]:
        return [_dot(line, vector) for line in self.covariance]


def prior() -> Coefficients:
    """The belief before any start was seen."""
    size = range(len(NAMES))
    deviations = tuple(PRIOR_DEVIATION.values())
    diagonal = tuple(
        tuple(deviations[i] ** 2 if i == j else 0.0 for j in size) for i in size
    )
    return Coefficients((1.0,) * len(NAMES), diagonal)


def _vector(row: Row) -> tuple[float, ...]:
    return tuple(row.get(name, 0.0) for name in NAMES)


def _dot(left: tuple[float, ...], right: tuple[float, ...] | list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
