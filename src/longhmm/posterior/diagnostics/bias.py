"""Whether the draws are biased: identities that exact draws and exact gradients g must satisfy together (Stein),

    E[v . g] = 0        and        E[(f - mean) v . g] = -E[v . grad f],

for every constant direction v and every parameter f of the coordinates. With v the covariance of the coordinates with
f, the first says how far the mean of f is off, and the second compares variances. If f is linear and the target
Gaussian, or f is an entry of a Dirichlet row, then `f + v . g` is constant, and few gradients suffice. Coordinates
themselves would need many: the logarithm of a nearly exponential variable, as a rare transition has it, is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.draws import Draws, entry_names, evenly_spaced, in_float64, parameter_axes
from longhmm.posterior.summary import effective_sizes, sd_errors
from longhmm.target.coordinates import Flat, constrain
from longhmm.target.target import exact

Details = dict[str, Any]
Gradient = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]

FALSE_ALARMS = 0.002  # share of right results that one kind of check may call wrong, over all parameters at once
MOST = {"shift": 0.1, "sd_ratio": 0.1}  # posterior sd, and relative error of the sd: beyond, biased
AT_ONCE = 64  # derivatives in one go


class Compared(NamedTuple):
    """Draws against what they should be, `(Q,)` by entry of the natural parameters, with Monte Carlo errors."""

    shift: np.ndarray  # mean of the draws minus the right one, in standard deviations
    shift_error: np.ndarray
    sd_ratio: np.ndarray  # standard deviation of the draws relative to the right one
    sd_ratio_error: np.ndarray
    freedom: float  # degrees of freedom of the errors


class Entries(NamedTuple):
    """All draws, flat; entries that never move are left out."""

    names: list[str]  # of the Q entries, as `Posterior.summary` has them
    values: np.ndarray  # (chain, draw, Q), natural parameters
    directions: np.ndarray  # (P, Q), covariance of every coordinate with every entry: how they move where it rises
    columns: np.ndarray  # (Q,), where each entry stands among all natural parameters


def entries(posterior: Draws) -> Entries:
    """The draws of a posterior as tables."""
    natural = {name: np.asarray(posterior.draws[name]) for name in parameter_axes(posterior.model)}
    names = [entry for name, value in natural.items() for entry in entry_names(name, value.shape[2:])]
    values = np.concatenate([value.reshape((*value.shape[:2], -1)) for value in natural.values()], axis=2)
    columns = np.flatnonzero(np.ptp(values, axis=(0, 1)) > 0)
    values = values[:, :, columns]
    coordinates = layout(posterior.coordinates).ravel_numpy(posterior.coordinates)
    u, f = (each.reshape(-1, each.shape[-1]) for each in (coordinates, values))
    directions = (u - u.mean(axis=0)).T @ (f - f.mean(axis=0)) / (len(f) - 1)
    return Entries([names[column] for column in columns], values, directions, columns)


def layout(coordinates: Mapping[str, np.ndarray]) -> Flat:
    """The order of coordinates `(chain, draw, ...)` in a flat vector, names sorted."""
    return Flat.like({name: value[0, 0] for name, value in coordinates.items()})


def bias(
    posterior: Draws,
    sequences: Sequences,
    count: int,
    details: Details,
    gradient: Gradient | None = None,
    progress: Progress | None = None,
) -> str | None:
    """What exact gradients at `count` draws say against the draws, if anything; the numbers go into `details`."""
    table, model, coordinates = entries(posterior), posterior.model, posterior.coordinates
    if not table.names:
        return None
    points, gradients = exact_gradients(model, coordinates, sequences, max(count, 3), gradient, progress)
    derivatives = in_float64(derivatives_along, model, layout(coordinates), points, table.columns, table.directions)
    return complaint(
        stein(table.values, table.directions, gradients, derivatives), table.names, details, "",
        "the mean of {name}, and its interval, are off by {shift:+.2f} posterior sd",
        "the interval of {name} is {sd_ratio:.2f} times as wide as it should be",
    )  # fmt: skip


def complaint(found: Compared, names: list[str], details: Details, prefix: str, *sentences: str) -> str | None:
    """A sentence on the entry whose mean, or else whose sd, is off by most beyond chance, if by enough to matter; the
    numbers of both entries go into `details`."""
    limit = errors_allowed(len(names), found.freedom)
    said = []
    for name, sentence in zip(("shift", "sd_ratio"), sentences, strict=True):
        values, errors = getattr(found, name), getattr(found, f"{name}_error")
        excess = np.abs(values - (name == "sd_ratio")) - limit * errors
        worst = int(np.argmax(excess))
        numbers = {name: float(values[worst]), f"{name}_error": float(errors[worst]), f"{name}_of": names[worst]}
        details.update({prefix + key: value for key, value in numbers.items()})
        if excess[worst] > MOST[name]:
            said.append(sentence.format(name=names[worst], **numbers))
    return said[0] if said else None


def errors_allowed(count: int, freedom: float = np.inf) -> float:
    """Standard errors by which the worst of `count` numbers may be off by chance, in either direction.

    Student's t with `freedom` degrees of freedom, where the errors themselves come from few numbers.
    """
    from scipy.stats import t

    return float(t.isf(FALSE_ALARMS / 2 / max(count, 1), freedom))


def exact_gradients(
    model: HMM,
    unconstrained: Mapping[str, np.ndarray],
    sequences: Sequences,
    n: int = 32,
    gradient: Gradient | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Points and exact gradients of the log posterior, `(n, P)` each, at evenly spaced draws `(chain, draw, ...)`.

    Each gradient is one pass over all data, unless the function `gradient` knows it.
    """
    order = layout(unconstrained)
    flat = order.ravel_numpy(unconstrained).reshape(-1, order.size)
    points = flat[evenly_spaced(len(flat), n)]

    def by_pass(coordinates: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return exact(model, constrain(model, coordinates), sequences, progress=progress)[1]

    slope = gradient or by_pass
    return points, np.stack([order.ravel_numpy(slope(order.unravel(point))) for point in points])


@partial(jax.jit, static_argnames=("order",))
def derivatives_along(model: HMM, order: Flat, points: jax.Array, columns: jax.Array, directions: jax.Array) -> Any:
    """`(n, Q)`: at each of the points `(n, P)`, by how much each entry rises along its own direction, `(P, Q)`."""

    def natural(point: jax.Array) -> jax.Array:
        params = model.constrain(order.unravel(point))
        return jnp.concatenate([params[name].ravel() for name in parameter_axes(model)])

    def along(one: tuple[jax.Array, jax.Array]) -> jax.Array:
        column, direction = one
        return jax.vmap(lambda point: jax.jvp(natural, (point,), (direction,))[1][column])(points)

    return jax.lax.map(along, (columns, directions.T), batch_size=AT_ONCE).T


def stein(values: np.ndarray, directions: np.ndarray, gradients: np.ndarray, derivatives: np.ndarray) -> Compared:
    """Compare draws `(chain, draw, Q)` with exact gradients `(n, P)` at evenly spaced ones of them.

    `directions` are those of `entries`, and `derivatives`, `(n, Q)`, those of the entries along them.
    """
    n = len(gradients)
    if n < 3 or derivatives.shape != (n, values.shape[-1]):
        raise ModelError(
            "gradients and derivatives must be arrays (n, P) and (n, Q) at three draws or more, got "
            f"{gradients.shape} and {derivatives.shape}."
        )
    flat = values.reshape(-1, values.shape[-1])
    centred = (flat - flat.mean(axis=0))[evenly_spaced(len(flat), n)]
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
