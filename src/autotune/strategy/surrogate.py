"""Points and what was measured there in; a belief about other points out.

A Gaussian process with a Matérn 5/2 kernel, one length scale per knob (Rasmussen and
Williams, *Gaussian Processes for Machine Learning*, 2006, chapters 2, 4 and 5). Two
choices are as far apart as two ends of a number's range, times their own scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize


Array = NDArray[np.float64]

SCALE_PRIOR = (0.0, 0.8)
"""Mean and deviation of the log length scale: about one range, within a factor of 2."""
SIGNAL_PRIOR = (0.0, 0.7)
"""Mean and deviation of the log signal deviation; targets are standardised."""
NOISE_PRIOR = (-2.5, 1.0)
"""Mean and deviation of the log noise deviation: about 8 % of the targets' spread."""
BOUNDS = {"scale": (-3.0, 3.0), "signal": (-2.0, 2.0), "noise": (-5.0, 0.5)}
STEPS = 40
"""Most steps of the fit; more change the figures in the third digit."""


@dataclass(frozen=True)
class Surrogate:
    """What is believed after the data.

    Attributes:
        points: Where it was measured, (n, knobs).
        choices: Which columns hold choices, (knobs,).
        log_parameters: Log length scales, log signal and log noise deviation.
        factor: Lower Cholesky factor of the kernel matrix, (n, n).
        weights: Kernel matrix inverse times the standardised targets, (n,).
        offset: Mean of the targets.
        spread: Standard deviation of the targets.
    """

    points: Array
    choices: NDArray[np.bool_]
    log_parameters: Array
    factor: Array
    weights: Array
    offset: float
    spread: float

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the noiseless value at ``points``, (m,)."""
        gaps = _gaps(points, self.points, self.choices)
        cross, _ = _kernel(gaps, self.log_parameters)
        mean = cross @ self.weights
        solved = solve_triangular(self.factor, cross.T, lower=True)
        signal = np.exp(2 * self.log_parameters[-2])
        variance = np.maximum(signal - np.sum(solved**2, axis=0), 1e-12)
        return self.offset + self.spread * mean, self.spread * np.sqrt(variance)


def fit(points: Array, targets: Array, *, choices: NDArray[np.bool_]) -> Surrogate:
    """The most probable surrogate of ``targets`` (n,) at ``points`` (n, knobs)."""
    offset, spread = float(np.mean(targets)), float(np.std(targets)) or 1.0
    standard = (targets - offset) / spread
    gaps = _gaps(points, points, choices)
    priors, bounds = _priors(points.shape[1])
    found = minimize(
        _cost,
        priors[0],
        args=(gaps, standard, priors),
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": STEPS},
    )
    kernel, _, _ = _noisy_kernel(gaps, found.x)
    factor = np.asarray(np.linalg.cholesky(kernel), dtype=np.float64)
    weights = cho_solve((factor, True), standard)
    return Surrogate(points, choices, found.x, factor, weights, offset, spread)


def _priors(knob_count: int) -> tuple[Array, list[tuple[float, float]]]:
    """Prior means and deviations, (2, parameters), and each parameter's bounds."""
    rows = [SCALE_PRIOR] * knob_count + [SIGNAL_PRIOR, NOISE_PRIOR]
    bounds = [BOUNDS["scale"]] * knob_count + [BOUNDS["signal"], BOUNDS["noise"]]
    return np.array(rows).T, bounds


def _gaps(left: Array, right: Array, choices: NDArray[np.bool_]) -> Array:
    """Squared distance by knob, (left, right, knobs); 1 between unlike choices."""
    gaps: Array = (left[:, None, :] - right[None, :, :]) ** 2
    gaps[..., choices] = gaps[..., choices] > 0
    return gaps


def _kernel(gaps: Array, log_parameters: Array) -> tuple[Array, Array]:
    """Covariance, and its derivative by the squared scaled distance."""
    inverse_squares = np.exp(-2 * log_parameters[:-2])
    signal = np.exp(2 * log_parameters[-2])
    distance = np.sqrt(5 * (gaps @ inverse_squares))
    decay = signal * np.exp(-distance)
    covariance = decay * (1 + distance + distance**2 / 3)
    return covariance, -5 / 6 * decay * (1 + distance)


def _noisy_kernel(gaps: Array, log_parameters: Array) -> tuple[Array, Array, Array]:
    """Kernel matrix with noise on its diagonal, the bare one, its derivative."""
    bare, slope = _kernel(gaps, log_parameters)
    noise = np.exp(2 * log_parameters[-1]) + 1e-8
    return bare + noise * np.eye(len(bare)), bare, slope


def _cost(
    log_parameters: Array, gaps: Array, targets: Array, priors: Array
) -> tuple[float, Array]:
    """Negative log posterior of the parameters, and its gradient (eq. 5.8, 5.9)."""
    kernel, bare, slope = _noisy_kernel(gaps, log_parameters)
    factor = np.linalg.cholesky(kernel)
    inverse = cho_solve((factor, True), np.eye(len(kernel)))
    weights = inverse @ targets
    pull = inverse - np.outer(weights, weights)
    by_scale = np.tensordot(pull * slope, gaps, axes=2) * np.exp(
        -2 * log_parameters[:-2]
    )
    by_signal = np.sum(pull * bare)
    by_noise = np.trace(pull) * np.exp(2 * log_parameters[-1])
    deviation = (log_parameters - priors[0]) / priors[1]
    cost = 0.5 * targets @ weights + np.sum(np.log(np.diag(factor)))
    gradient = np.concatenate([-by_scale, [by_signal, by_noise]])
    return float(cost + 0.5 * deviation @ deviation), gradient + deviation / priors[1]
