"""Regions of observations and parameters, in words; and angles, which on the whole line would have many points with one
meaning: their coordinates need a cut, where the turn begins and ends, while natural values lie in (-pi, pi]."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

_JOINED = constraints.independent(constraints.real, 1)


def same_support(one: Constraint, other: Constraint) -> bool:
    """Whether two constraints describe the same region, bounds included."""
    bounds, structure = jax.tree.flatten(one)
    other_bounds, other_structure = jax.tree.flatten(other)
    return str(structure) == str(other_structure) and all(map(np.array_equal, bounds, other_bounds))


def bare(support: Constraint) -> Constraint:
    """The region of a single event, where a constraint joins several of them (or, as flat priors have it, one)."""
    return support.base_constraint if isinstance(support, type(_JOINED)) else support


def settle(support: Constraint, n_states: int, batch_dims: int) -> tuple[Constraint, bool]:
    """The support with NumPy bounds, without the state axis where all states agree, and whether they differ."""
    leaves, structure = jax.tree.flatten(support)
    # Whole numbers of 32 bits: JAX does not always shorten longer ones once both precisions have been in use.
    bounds = [np.asarray(leaf) for leaf in leaves]
    bounds = [bound.astype(np.int32) if bound.dtype.kind in "iu" else bound for bound in bounds]
    stacked = [bound.ndim == batch_dims and bound.shape[0] == n_states for bound in bounds]
    differ = any(each and np.any(bound != bound[:1]) for bound, each in zip(bounds, stacked, strict=True))
    if not differ:
        bounds = [bound[0] if each else bound for bound, each in zip(bounds, stacked, strict=True)]
    return jax.tree.unflatten(structure, bounds), bool(differ)


def in_words(support: Constraint) -> str:
    """What a value must be, as a noun phrase."""
    support = bare(support)
    for constraint, words in _WORDS:
        # NumPyro calls "positive" and "non-negative" equal, so the type decides before equality does.
        if type(support) is type(constraint) or (support == constraint and type(support) not in _TYPES):
            return words
    if support.event_dim > 0:
        return f"a vector in {support!r}"
    low, high = (getattr(support, name, None) for name in ("lower_bound", "upper_bound"))
    noun = "an integer" if support.is_discrete else "a number"
    least = "" if low is None else f"{np.min(np.asarray(low)):g}"
    most = "" if high is None else f"{np.max(np.asarray(high)):g}"
    if least and most:
        return f"{noun} from {least} to {most}"
    if least:
        return f"{noun} from {least} on" if support.is_discrete else f"{noun} above {least}"
    return f"{noun} below {most}" if most else f"a value in {support!r}"


_WORDS = [
    (constraints.real, "a real number"),
    (constraints.boolean, "0 or 1"),
    (constraints.unit_interval, "a number between 0 and 1"),
    (constraints.circular, "an angle between -pi and pi"),
    (constraints.positive_integer, "a positive integer"),
    (constraints.nonnegative_integer, "a non-negative integer"),
    (constraints.nonnegative, "a non-negative number"),
    (constraints.positive, "a positive number"),
    (constraints.simplex, "a vector of non-negative shares that sum to one"),
    (constraints.positive_definite, "a positive definite matrix"),
    (constraints.ordered_vector, "an increasing vector"),
    (constraints.lower_cholesky, "a lower Cholesky factor"),
]
_TYPES = {type(constraint) for constraint, _ in _WORDS}


WHOLE = 2.0 * np.pi
EDGE = 1e-6  # share of a turn: an angle at the cut itself has coordinates all the same
_TO_UNIT = biject_to(constraints.unit_interval)


def wrapped(angle: Any) -> Any:
    """The same angle in (-pi, pi]."""
    return angle - WHOLE * (jnp if isinstance(angle, jax.Array) else np).ceil((angle - np.pi) / WHOLE)


def mean_direction(angles: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The direction of the sum of unit vectors, in (-pi, pi]."""
    return np.asarray(np.arctan2(np.sin(angles).mean(axes), np.cos(angles).mean(axes)))


def unwrapped(angles: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The same angles within half a turn of their mean direction, so that they average as numbers do."""
    centre = np.expand_dims(mean_direction(angles, axes), axes)
    return np.asarray(centre + wrapped(angles - centre))


class Turn(Constraint):
    """An angle, any number. `cut` is where its coordinates begin and end, far from where it is expected."""

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

    def __call__(self, x: jax.Array) -> jax.Array:
        return wrapped(self.cut + WHOLE * _TO_UNIT(x))

    def _inverse(self, y: jax.Array) -> jax.Array:
        return _TO_UNIT.inv(jnp.clip(jnp.mod(y - self.cut, WHOLE) / WHOLE, EDGE, 1.0 - EDGE))

    def log_abs_det_jacobian(self, x: jax.Array, y: jax.Array, intermediates: Any = None) -> jax.Array:
        return _TO_UNIT.log_abs_det_jacobian(x, _TO_UNIT(x)) + np.log(WHOLE)

    def tree_flatten(self) -> Any:
        return (self.cut,), (("cut",), {})


biject_to.register(Turn, lambda constraint: TurnTransform(constraint.cut))
