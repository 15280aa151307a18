"""Checks that can see bias: identities that exact draws and exact gradients must satisfy together.

With g the gradient of the log posterior in unconstrained coordinates u, integration by parts gives, for draws of the
posterior and of nothing else, for every constant direction v and every parameter f(u),

    E[v . g] = 0        and        E[(f - mean) v . g] = -E[v . grad f].

With v the covariance of u and f, both are read in units that mean something. `E[v . g]` is how far the mean of f in the
target lies from its mean in the draws, and the second identity compares variances. If f is a linear function of u and
the target is Gaussian, or f is an entry of a Dirichlet row, then `f + v . g` is constant: few gradients suffice, and
what is left is the Monte Carlo error of the chains. That is why natural parameters are compared rather than
coordinates: the logarithm of a nearly exponential variable, as a rare transition has it, is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.convergence import effective_sizes
from longhmm.posterior.draws import constrain_one
from longhmm.posterior.entries import flatten, layout
from longhmm.target.full_data import log_posterior_and_gradient

Gradient = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Compared:
    """Draws against what they should be, entry by entry of the natural parameters.

    Attributes:
        shift: `(Q,)` mean of the draws minus the right one, in standard deviations.
        shift_error: its Monte Carlo standard error.
        sd_ratio: `(Q,)` standard deviation of the draws relative to the right one.
        sd_ratio_error: its Monte Carlo standard error.
        freedom: degrees of freedom of the errors.
    """

    shift: np.ndarray
    shift_error: np.ndarray
    sd_ratio: np.ndarray
    sd_ratio_error: np.ndarray
    freedom: float


def picked(total: int, count: int) -> np.ndarray:
    """`count` of `total` draws, evenly spaced: the middle of each of as many equal parts."""
    count = min(count, total)
    return (2 * np.arange(count) + 1) * total // (2 * count)


def exact_gradients(
    model: HMM,
    unconstrained: dict[str, np.ndarray],
    sequences: Sequences,
    n: int = 32,
    *,
    gradient: Gradient | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Points and exact gradients of the log posterior, `(n, P)` each, at the `picked` draws.

    Args:
        unconstrained: coordinates by name, `(chain, draw, ...)`.
        sequences: the data; each gradient is one pass over all of them.
        gradient: a function from coordinates by name to the gradient, instead of the passes.
        progress: called with the number of rows that a pass has done.
    """
    order, flat = layout(unconstrained), flatten(unconstrained)
    flat = flat.reshape(-1, flat.shape[-1])
    points = flat[picked(len(flat), n)]

    def by_pass(coordinates: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return log_posterior_and_gradient(model, constrain_one(model, coordinates), sequences, progress=progress)[1]

    slope = gradient or by_pass
    return points, np.stack([order.ravel_numpy(slope(order.unravel(point))) for point in points])


def stein(values: np.ndarray, directions: np.ndarray, gradients: np.ndarray, derivatives: np.ndarray) -> Compared:
    """Compare draws with exact gradients at some of them.

    Args:
        values: `(chain, draw, Q)`, natural parameters.
        directions: `(P, Q)`, covariance of each coordinate with each entry, over all draws.
        gradients: `(n, P)`, at the `picked` draws.
        derivatives: `(n, Q)`, of each entry along its direction, at the same draws.
    """
    n = len(gradients)
    if n < 3 or derivatives.shape != (n, values.shape[-1]):
        raise ModelError(
            "gradients and derivatives must be arrays (n, P) and (n, Q) at three draws or more, got "
            f"{gradients.shape} and {derivatives.shape}."
        )
    flat = values.reshape(-1, values.shape[-1])
    centred = (flat - flat.mean(axis=0))[picked(len(flat), n)]
    variance = flat.var(axis=0, ddof=1)
    newton = centred + gradients @ directions  # mean of the target minus that of the draws, if the two are linear
    shift_error = np.sqrt(newton.var(axis=0, ddof=1) / n / variance + 1.0 / effective_sizes(values))
    # Draws that are too wide make `newton` fall as `centred` rises. The slope, rather than a mean of products, has no
    # error from where the few points happen to lie.
    slope, slope_error = _slopes(centred, newton)
    # The mean derivative over all draws, from the few: where it goes with the entry, the entry's mean is known.
    tilt = _slopes(centred, derivatives)[0]
    expected = derivatives.mean(axis=0) - tilt * centred.mean(axis=0)
    spread = (derivatives - derivatives.mean(axis=0) - tilt * (centred - centred.mean(axis=0))).std(axis=0, ddof=1)
    scale = variance / expected
    ratio = (1.0 - slope) * scale
    relative = np.hypot(spread / np.sqrt(n) / expected, 2.0 * sd_errors(values))
    width = np.sqrt(np.maximum(ratio, 0.0))
    # The error of a square root, away from zero.
    width_error = np.hypot(slope_error * scale, ratio * relative) / (2 * np.maximum(width, 0.5))
    return Compared(-newton.mean(axis=0) / np.sqrt(variance), shift_error, width, width_error, n - 2)


def _slopes(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope of every column of `y` against that of `x`, and its standard error whatever the scatter looks like (HC3:
    each residual as if its point had been left out, since a few points far out pull the line towards themselves)."""
    inside = x - x.mean(axis=0)
    leverage = inside**2 / np.sum(inside**2, axis=0)
    slope = np.sum(inside * y, axis=0) / np.sum(inside**2, axis=0)
    left = (y - y.mean(axis=0) - slope * inside) / (1.0 - 1.0 / len(x) - leverage)
    return slope, np.sqrt(np.sum((inside * left) ** 2, axis=0)) / np.sum(inside**2, axis=0)


def sd_errors(draws: np.ndarray) -> np.ndarray:
    """`(Q,)`, relative standard error of the standard deviation of each column of `(chain, draw, Q)`."""
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    spread = squares.std(axis=(0, 1)) / squares.mean(axis=(0, 1))
    return np.asarray(0.5 * spread / np.sqrt(effective_sizes(squares)))
