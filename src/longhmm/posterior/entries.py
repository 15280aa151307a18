"""Draws as two tables: every number that users see, by name, beside the coordinates in which the chains move."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.model.hmm import HMM
from longhmm.posterior.labels import entry_names, parameter_dims, parameter_shapes
from longhmm.target.coordinates import Flat

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

AT_ONCE = 64  # derivatives in one go


class Entries(NamedTuple):
    """All draws, flat.

    Attributes:
        names: of the Q entries, as `Posterior.summary` has them; those that never move are left out.
        values: `(chain, draw, Q)`, natural parameters.
        coordinates: `(chain, draw, P)`, unconstrained, names in sorted order.
        columns: `(Q,)`, where each entry stands among all natural parameters (see `derivatives_along`).
    """

    names: list[str]
    values: np.ndarray
    coordinates: np.ndarray
    columns: np.ndarray

    @property
    def directions(self) -> np.ndarray:
        """`(P, Q)`, covariance of every coordinate with every entry: how coordinates move where an entry rises."""
        values, coordinates = (each.reshape(-1, each.shape[-1]) for each in (self.values, self.coordinates))
        return (coordinates - coordinates.mean(axis=0)).T @ (values - values.mean(axis=0)) / (len(values) - 1)


def entries(posterior: Posterior) -> Entries:
    """The draws of a posterior as tables."""
    natural = {name: np.asarray(posterior.draws[name]) for name in parameter_dims(posterior.model)}
    names = [entry for name, value in natural.items() for entry in entry_names(name, value.shape[2:])]
    values = np.concatenate([value.reshape((*value.shape[:2], -1)) for value in natural.values()], axis=2)
    columns = np.flatnonzero(np.ptp(values, axis=(0, 1)) > 0)
    coordinates = flatten({str(name): np.asarray(value) for name, value in posterior.unconstrained.items()})
    return Entries([names[column] for column in columns], values[:, :, columns], coordinates, columns)


def flatten(unconstrained: dict[str, np.ndarray]) -> np.ndarray:
    """Coordinates by name, `(chain, draw, ...)`, to `(chain, draw, P)`, names in sorted order."""
    return layout(unconstrained).ravel_numpy(unconstrained)


def layout(unconstrained: dict[str, np.ndarray]) -> Flat:
    """The order of coordinates `(chain, draw, ...)` in a flat vector."""
    return Flat.like({name: value[0, 0] for name, value in unconstrained.items()})


def derivatives_along(
    model: HMM, order: Flat, points: np.ndarray, columns: np.ndarray, directions: np.ndarray
) -> np.ndarray:
    """`(n, Q)`: at each of the points `(n, P)`, by how much each entry rises along its own direction, `(P, Q)`."""
    with jax.enable_x64(True):
        found = _derivatives(model, order, jnp.asarray(points), jnp.asarray(columns), jnp.asarray(directions.T))
    return np.asarray(found).T


@partial(jax.jit, static_argnames=("order",))
def _derivatives(model: HMM, order: Flat, points: jax.Array, columns: jax.Array, directions: jax.Array) -> jax.Array:
    names = list(parameter_shapes(model))

    def natural(point: jax.Array) -> jax.Array:
        params = model.constrain(order.unravel(point))
        return jnp.concatenate([params[name].ravel() for name in names])

    def along(one: tuple[jax.Array, jax.Array]) -> jax.Array:
        column, direction = one
        return jax.vmap(lambda point: jax.jvp(natural, (point,), (direction,))[1][column])(points)

    return jax.lax.map(along, (columns, directions), batch_size=AT_ONCE)
