"""What a sampler asks of a bound estimator: the gradient, and, where they exist, the counts behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import Statistics
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.samplers.contract import Kernel
from longhmm.target.control_variate import BoundControlVariate
from longhmm.target.coordinates import add, prior_gradient, score
from longhmm.target.estimators import BoundFullData, BoundWindows
from longhmm.target.full_data import full_statistics


class Evaluation(NamedTuple):
    """One look at the data from given coordinates.

    Attributes:
        likelihood: estimate of the gradient of the log likelihood, by name.
        posterior: the same with the prior's gradient, Jacobian included.
        totals: expected statistics scaled to all data; None under control variates, where they could be negative.
        windows: expected statistics of every window, without weights, where they were asked for.
        impossible: how many windows had to be left out, see `impossible_windows`.
    """

    likelihood: dict[str, Any]
    posterior: dict[str, Any]
    totals: Statistics | None
    windows: Statistics | None
    impossible: Any


def impossible_windows(totals: Statistics | None, minibatch: Any) -> jax.Array:
    """At least how many windows hold observations that no state can produce, so that they were left out.

    Every time in a core adds its window's weight to the expected first states or transitions, whatever was observed;
    only windows whose likelihood is zero add nothing.
    """
    if totals is None:
        return jnp.zeros((), jnp.int32)
    expected, least = minibatch.weights * minibatch.layout.core, 0.5 * jnp.min(minibatch.weights)
    lost = jnp.sum(expected) - jnp.sum(totals.first) - jnp.sum(totals.transitions)
    return jnp.where(lost > least, jnp.ceil((lost - least) / jnp.max(expected)), 0.0).astype(jnp.int32)


def evaluate(
    model: HMM, estimator: Any, coordinates: Mapping[str, jax.Array], minibatch: Any, *, per_window: bool = False
) -> Evaluation:
    """Gradient and statistics of a minibatch, or of all data, at the given coordinates."""
    if isinstance(estimator, BoundFullData):
        return _evaluate_all(model, estimator, coordinates, minibatch)
    found = estimator.estimate(coordinates, minibatch, prior=False, per_window=per_window)
    posterior = add(found.gradient, prior_gradient(model, coordinates))
    totals = found.statistics
    if per_window and totals is not None:
        totals = totals.total(minibatch.weights)
    lost = impossible_windows(totals, minibatch)
    if not isinstance(estimator, BoundWindows):
        return Evaluation(found.gradient, posterior, None, None, lost)
    return Evaluation(found.gradient, posterior, totals, found.statistics if per_window else None, lost)


def _evaluate_all(
    model: HMM, estimator: BoundFullData, coordinates: Mapping[str, jax.Array], data: Sequences
) -> Evaluation:
    kinds = {name: value.dtype for name, value in coordinates.items()}
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(np.asarray(value), jnp.float64) for name, value in coordinates.items()}
        params = jax.tree.map(np.asarray, _constrained(model, wide))
        if estimator.initial is not None:
            params = {**params, "initial": estimator.initial}
        totals = full_statistics(model, params, data)
        found = _gradients(model, estimator.initial is None, wide, totals)
        narrow = [{name: np.asarray(value, kinds[name]) for name, value in each.items()} for each in found]
    return Evaluation(narrow[0], narrow[1], totals, None, jnp.zeros((), jnp.int32))


@jax.jit
def _constrained(model: HMM, coordinates: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return model.constrain(coordinates)


@partial(jax.jit, static_argnames=("moves",))
def _gradients(
    model: HMM, moves: bool, coordinates: dict[str, jax.Array], totals: Statistics
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    likelihood = score(model, coordinates, totals, initial_moves=moves)
    return likelihood, add(likelihood, prior_gradient(model, coordinates))


def sequences_of(estimator: Any) -> Sequences:
    """The data that an estimator is bound to."""
    if isinstance(estimator, BoundFullData):
        return estimator.sequences
    plain = estimator.plain if isinstance(estimator, BoundControlVariate) else estimator
    if not isinstance(plain, BoundWindows):
        raise ModelError(
            f"estimator must be bound from FullData(), Buffered(...), IID(...) or ControlVariate(...), got "
            f"{type(estimator).__name__}."
        )
    return plain.source.sequences


def is_compiled(estimator: Any) -> bool:
    """Whether steps with this estimator may run inside compiled code: all but passes over the whole data."""
    return not isinstance(estimator, BoundFullData)


def kernel_of(estimator: Any, init: Callable[..., Any], step: Callable[..., Any]) -> Kernel:
    """The kernel of a sampler; a step that may be compiled is, also where it is called on its own."""
    compiled = is_compiled(estimator)
    return Kernel(init, jax.jit(step) if compiled else step, estimator.draw, compiled)


def chosen(windows: Any, buffer: Any) -> dict[str, Any]:
    """The user's choice of windows and buffer as arguments of an estimator; what is None keeps its default."""
    given = {"windows": windows, "buffer": buffer}
    return {name: value for name, value in given.items() if value is not None}


def all_finite(tree: Any) -> jax.Array:
    """Whether every number in a tree of arrays is finite."""
    return jnp.all(jnp.isfinite(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])))
