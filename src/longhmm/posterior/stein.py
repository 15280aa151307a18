"""Checks that can see bias: identities that exact draws and exact gradients must satisfy together.

With g the gradient of the log posterior in unconstrained coordinates u, integration by parts gives, for draws of the
posterior and of nothing else,

    E[g] = 0        and        E[(u - mean) g'] = -I.

Both are read in units that mean something. With C the covariance of the draws, `C E[g]` is how far the mean of a
Gaussian target lies from the mean of the draws, and the diagonal of `-E[(u - mean) (C g)'] / C` is the ratio of the
draws' variance to the target's. For a Gaussian target `u + C g` is constant, so the sums below are formed from it and
from the moments of all draws: few gradients suffice, and what is left is the Monte Carlo error of the chains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.gradients.flat import Flat
from longhmm.gradients.full_data import log_posterior_and_gradient
from longhmm.kernels.full_pass import Progress
from longhmm.model.hmm import HMM
from longhmm.posterior.convergence import effective_sizes
from longhmm.posterior.draws import constrain_one

Gradient = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Stein:
    """Bias of the draws, coordinate by coordinate (flat, names in sorted order).

    Attributes:
        shift: `(P,)` mean of the draws minus mean of the target, in standard deviations.
        shift_error: its Monte Carlo standard error.
        sd_ratio: `(P,)` standard deviation of the draws relative to the target's; 1 is right.
        sd_ratio_error: its Monte Carlo standard error.
    """

    shift: np.ndarray
    shift_error: np.ndarray
    sd_ratio: np.ndarray
    sd_ratio_error: np.ndarray


def flatten(unconstrained: Mapping[str, np.ndarray]) -> np.ndarray:
    """Coordinates by name, `(chain, draw, ...)`, to `(chain, draw, P)`, names in sorted order."""
    arrays = {name: np.asarray(value, np.float64) for name, value in unconstrained.items()}
    return _layout(arrays).ravel_numpy(arrays)


def exact_gradients(
    model: HMM,
    unconstrained: Mapping[str, np.ndarray],
    sequences: Sequences,
    n: int = 32,
    *,
    gradient: Gradient | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Points and exact gradients of the log posterior, `(n, P)` each, at `n` evenly spaced draws.

    Args:
        unconstrained: coordinates by name, `(chain, draw, ...)`.
        sequences: the data; each gradient is one pass over all of them.
        gradient: a function from coordinates by name to the gradient, instead of the passes.
        progress: called with the number of rows that a pass has done.
    """
    arrays = {name: np.asarray(value, np.float64) for name, value in unconstrained.items()}
    layout, flat = _layout(arrays), flatten(arrays)
    flat = flat.reshape(-1, flat.shape[-1])
    count = min(n, len(flat))
    points = flat[(2 * np.arange(count) + 1) * len(flat) // (2 * count)]

    def by_pass(coordinates: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return log_posterior_and_gradient(model, constrain_one(model, coordinates), sequences, progress=progress)[1]

    slope = gradient or by_pass
    return points, np.stack([layout.ravel_numpy(slope(layout.unravel(point))) for point in points])


def stein(draws: np.ndarray, points: np.ndarray, gradients: np.ndarray) -> Stein:
    """Compare draws `(chain, draw, P)` with exact gradients `(n, P)` at some of them, `points` `(n, P)`."""
    if points.shape != gradients.shape or len(points) < 2:
        raise ModelError(
            f"points and gradients must be two equal arrays (n, P), got {points.shape}, {gradients.shape}."
        )
    flat = draws.reshape(-1, draws.shape[-1])
    mean = flat.mean(axis=0)
    covariance = np.atleast_2d(np.cov(flat, rowvar=False))
    variance = np.diag(covariance)
    size = effective_sizes(draws)
    n = len(points)
    centred = points - mean
    newton = centred + gradients @ covariance  # a Gaussian target: its mean minus that of the draws, at every point
    sd = np.sqrt(variance)
    shift_error = np.sqrt(newton.var(axis=0, ddof=1) / n / variance + 1.0 / size)
    # Draws that are too wide make `newton` fall as `centred` rises. The slope, rather than a mean of products over the
    # variance of all draws, has no error from where the few points happen to lie.
    inside = centred - centred.mean(axis=0)
    leverage = np.sum(inside**2, axis=0)
    slope = np.sum(inside * newton, axis=0) / leverage
    left = newton - newton.mean(axis=0) - slope * inside
    ratio = 1.0 - slope
    slope_variance = np.sum((inside * left) ** 2, axis=0) / leverage**2 * n / max(n - 2, 1)
    ratio_error = np.sqrt(slope_variance + 2.0 * ratio**2 / size)
    width = np.sqrt(np.maximum(ratio, 0.0))
    # The error of a square root, away from zero.
    return Stein(-newton.mean(axis=0) / sd, shift_error, width, ratio_error / (2 * np.maximum(width, 0.5)))


def _layout(arrays: Mapping[str, np.ndarray]) -> Flat:
    return Flat.like({name: value[0, 0] for name, value in arrays.items()})
