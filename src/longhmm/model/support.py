"""The region observations live in: in words, with a value to stand for a missing one; and data outside of it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.constraints import Constraint

from longhmm.errors import DataError, ModelError

_JOINED = constraints.independent(constraints.real, 1)


def same_support(one: Constraint, other: Constraint) -> bool:
    """Whether two constraints describe the same region, bounds included."""
    bounds, structure = jax.tree.flatten(one)
    other_bounds, other_structure = jax.tree.flatten(other)
    return str(structure) == str(other_structure) and all(
        np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(bounds, other_bounds, strict=True)
    )


def bare(support: Constraint) -> Constraint:
    """The region of a single event, where a constraint joins several of them (or, as flat priors have it, one)."""
    return support.base_constraint if isinstance(support, type(_JOINED)) else support


def settle(support: Constraint, n_states: int, batch_dims: int) -> tuple[Constraint, bool]:
    """The support with NumPy bounds, without the state axis where all states agree, and whether they differ."""
    leaves, structure = jax.tree.flatten(support)
    bounds = [_same_in_both_precisions(np.asarray(leaf)) for leaf in leaves]
    stacked = [bound.ndim == batch_dims and bound.shape[0] == n_states for bound in bounds]
    differ = any(
        is_stacked and not np.array_equal(bound, np.broadcast_to(bound[:1], bound.shape))
        for bound, is_stacked in zip(bounds, stacked, strict=True)
    )
    if not differ:
        bounds = [bound[0] if is_stacked else bound for bound, is_stacked in zip(bounds, stacked, strict=True)]
    return jax.tree.unflatten(structure, bounds), differ


def _same_in_both_precisions(bound: np.ndarray) -> np.ndarray:
    """Whole numbers of 32 bits: JAX does not always shorten longer ones once both precisions have been in use."""
    return bound.astype(np.int32) if bound.dtype.kind in "iu" else bound


def feasible(support: Constraint, shape: tuple[int, ...]) -> jax.Array:
    """A value inside the support, of this shape: what a missing observation is filled with."""
    return jnp.asarray(support.feasible_like(jnp.zeros(shape)))


def in_words(support: Constraint) -> str:
    """What a value must be, as a noun phrase."""
    support = bare(support)
    for constraint, words in _WORDS:
        # NumPyro calls "positive" and "non-negative" equal, so the type decides before equality does.
        if type(support) is type(constraint) or (support == constraint and type(support) not in _TYPES):
            return words
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    noun = "an integer" if support.is_discrete else "a number"
    if support.event_dim > 0:
        return f"a vector in {support!r}"
    if low is not None and high is not None:
        return f"{noun} from {_bound(low, min)} to {_bound(high, max)}"
    if low is not None:
        return f"{noun} above {_bound(low, min)}" if not support.is_discrete else f"{noun} from {_bound(low, min)} on"
    return f"{noun} below {_bound(high, max)}" if high is not None else f"a value in {support!r}"


def _bound(bound: object, pick: object) -> str:
    return f"{pick(np.ravel(np.asarray(bound)).tolist()):g}"  # type: ignore[operator]


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


# Observations that an emission cannot have produced --------------------------------------------------------------


def check_dim(dim: int, expected: int, owner: str) -> None:
    """Refuse data with another number of features than the emission has."""
    if dim != expected:
        raise DataError(
            f"The data have {dim} feature(s), but the {owner} emission has dim={expected}: choose the "
            f"columns to use, or build the emission with dim={dim}."
        )


def one_feature(name: str, dim: int) -> None:
    """Refuse several features for a family that describes one."""
    if dim > 1:
        raise ModelError(f"the emission {name} describes one feature, but the data have {dim}: choose one of them.")


def check_values(
    values: np.ndarray,
    observed: np.ndarray,
    inside: np.ndarray,
    support: Constraint,
    owner: str,
    describe: Callable[[int], str],
) -> None:
    """Report the first observed entry that is not `inside`; `inside` is (n, D), or (n,) for whole rows."""
    bad = observed & ~inside if inside.ndim == 2 else observed.all(-1) & ~inside
    if not bad.any():
        return
    first = int(np.flatnonzero(bad.any(-1) if bad.ndim == 2 else bad)[0])
    if bad.ndim == 2:
        feature = int(np.flatnonzero(bad[first])[0])
        shown = f"{values[first, feature]:.10g}" + (f" in feature {feature}" if values.shape[1] > 1 else "")
    else:
        shown = np.array2string(values[first], precision=6)
    raise DataError(
        f"{describe(first)} is {shown}, but a {owner} emission needs {in_words(support)}: correct the "
        "value, replace it by NaN to mark it as missing, or choose another emission."
    )


def inside_support(support: Constraint, values: np.ndarray, *, by_state: bool, vector: bool) -> np.ndarray:
    """Whether values (n, D) lie in the support of at least one state: (n, D), or (n,) for a multivariate support."""
    if not by_state:
        return np.asarray(support(values))
    if values.shape[1] == 1 and not vector:  # bounds (K,) against values (n, 1)
        return np.any(np.asarray(support(values)), axis=1, keepdims=True)
    return np.asarray(np.any(np.asarray(support(values[:, None, :])), axis=1))
