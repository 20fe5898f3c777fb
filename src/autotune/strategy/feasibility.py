"""Forecasts and what became of launches in; the chance that another one fits out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from autotune.domain.settings import Value


Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of a configuration before it is launched.

    Attributes:
        shortfall: What will be missing; positive means it should not fit. Best in
            the unit of the constraint's own values, as TPE ranks both together.
        error: One standard deviation of ``shortfall``, same unit; 0 when certain.
        constraint: The key under which a launch records whether it did fit.
        reason: Why it should not fit, for people.
    """

    shortfall: float
    error: float = 0.0
    constraint: str = "memory"
    reason: str = ""


Guard = Callable[[Mapping[str, Value]], Forecast | None]
"""Forecasts a configuration; None where nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Correction:
    """How forecasts have to be read, learnt from launches.

    Attributes:
        bias: To be added to a shortfall, in units of the stated error.
        scale: How many times larger the error is than stated.
    """

    bias: float = 0.0
    scale: float = 1.0

    def chance_to_fit(self, forecast: Forecast | None) -> float:
        """Probability that nothing is missing; 1 where nothing is known."""
        if forecast is None:
            return 1.0
        if forecast.error <= 0:
            return float(forecast.shortfall <= 0)
        excess = forecast.shortfall / forecast.error + self.bias
        return float(ndtr(-excess / self.scale))


def correct(forecasts: Sequence[Forecast], fitted: Sequence[bool]) -> Correction:
    """The most probable correction, given which of the forecast launches fitted.

    A launch is chosen by its forecast alone, so the chance of its outcome *given*
    the forecast is not distorted by that choice. Priors keep both numbers near what
    the guard claims (bias 0 ± 1, scale 1 within a factor of 1.6) until launches
    contradict it. Certain forecasts teach nothing.
    """
    pairs = [
        (f.shortfall / f.error, 1.0 if fit else -1.0)
        for f, fit in zip(forecasts, fitted, strict=True)
        if f.error > 0
    ]
    if not pairs:
        return Correction()
    excess, sign = np.array(pairs).T
    bias, log_scale = np.meshgrid(np.linspace(-3, 3, 61), np.linspace(-1.5, 1.5, 31))
    z = -(excess + bias[..., None]) / np.exp(log_scale)[..., None] * sign
    likelihood = np.sum(log_ndtr(z), axis=-1)
    posterior = likelihood - 0.5 * bias**2 - 0.5 * (log_scale / 0.47) ** 2
    best = np.unravel_index(np.argmax(posterior), posterior.shape)
    return Correction(float(bias[best]), float(np.exp(log_scale[best])))
