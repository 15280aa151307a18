"""Angles as parameters: any number means one, values come out in (-pi, pi], and coordinates run over one turn.

On the whole line an angle and the same angle plus 2 pi would be two points with one meaning. Coordinates therefore need
a cut, where the turn begins and ends. Users need not know where it lies: natural values follow the convention of data.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

WHOLE = 2.0 * np.pi
EDGE = 1e-6  # share of a turn: an angle at the cut itself has coordinates all the same
_WAY = biject_to(constraints.unit_interval)


def wrapped(angle: Any) -> Any:
    """The same angle in (-pi, pi]."""
    where = jnp if isinstance(angle, jax.Array) else np
    return angle - WHOLE * where.ceil((angle - np.pi) / WHOLE)


def mean_direction(angles: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The direction of the sum of unit vectors, in (-pi, pi]."""
    return np.asarray(np.arctan2(np.sin(angles).mean(axes), np.cos(angles).mean(axes)))


def unwrapped(angles: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The same angles within half a turn of their mean direction, so that they average as numbers do."""
    centre = np.expand_dims(mean_direction(angles, axes), axes)
    return np.asarray(centre + wrapped(angles - centre))


class Turn(Constraint):
    """An angle. `cut` is where its coordinates begin and end, far from where it is expected."""

    def __init__(self, cut: Any) -> None:
        self.cut = cut

    def __call__(self, x: Any) -> Any:
        return (jnp if isinstance(x, jax.Array) else np).isfinite(x)

    def __repr__(self) -> str:
        return "an angle"

    def tree_flatten(self) -> Any:
        return (self.cut,), (("cut",), {})

    def eq(self, other: object, static: bool = False) -> bool:
        return isinstance(other, Turn) and np.array_equal(self.cut, other.cut)


class TurnTransform(Transform):
    """From the real numbers to one turn that begins at `cut`, told in (-pi, pi]."""

    def __init__(self, cut: Any) -> None:
        self.cut = cut

    @property
    def codomain(self) -> Constraint:
        return Turn(self.cut)

    def __call__(self, x: jax.Array) -> jax.Array:
        return wrapped(self.cut + WHOLE * _WAY(x))

    def _inverse(self, y: jax.Array) -> jax.Array:
        return _WAY.inv(jnp.clip(jnp.mod(y - self.cut, WHOLE) / WHOLE, EDGE, 1.0 - EDGE))

    def log_abs_det_jacobian(self, x: jax.Array, y: jax.Array, intermediates: Any = None) -> jax.Array:
        return _WAY.log_abs_det_jacobian(x, _WAY(x)) + np.log(WHOLE)

    def tree_flatten(self) -> Any:
        return (self.cut,), (("cut",), {})


biject_to.register(Turn, lambda constraint: TurnTransform(constraint.cut))
