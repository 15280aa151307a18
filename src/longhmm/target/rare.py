"""Rare transitions, whose sampled counts would throw a chain far off.

A transition that was never seen for certain has a small expected count that rises in proportion to its probability, and
that hangs on a few rows: whenever a window meets one of them, it is scaled up to all data. Near the centre of control
variates such counts are known, though: `n_ij(theta) = n_ij(theta*) A_ij / A*_ij`, up to small terms. Control variates
add the difference between the exact and the sampled version of that, which has mean zero (F26).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.inference.scaling import safe_log
from longhmm.model.hmm import HMM
from longhmm.target.coordinates import Coordinates, interior
from longhmm.target.full_data import full_statistics

RARE = 20.0  # expected counts below this are looked at


class Rare(NamedTuple):
    """Transitions whose expected counts follow their probabilities.

    Attributes:
        counts: `(K, K)`, expected counts of all data at the centre.
        share: `(K, K)`, from 0 (a count that is what it is) to 1 (a count in proportion to the probability).
    """

    counts: Any
    share: Any


def find_rare(model: HMM, centre: Mapping[str, np.ndarray], sequences: Sequences) -> Rare:
    """Which transitions have counts that follow their probabilities: two passes, the second with small ones doubled."""
    complete = interior(model, centre)
    if model.transitions.varies:  # there is no single probability that a count could follow
        none = np.zeros((model.n_states, model.n_states), np.float32)
        return Rare(none, none)
    counts = full_statistics(model, complete, sequences).transitions
    rare = (counts < RARE) & model.transitions.allowed & model.transitions.free_rows[:, None]
    doubled = np.where(rare, 2.0, 1.0) * complete["transition"]
    moved = full_statistics(
        model, {**complete, "transition": doubled / doubled.sum(axis=1, keepdims=True)}, sequences
    ).transitions
    tiny = np.finfo(np.float64).tiny
    share = np.log2(np.maximum(moved, tiny) / np.maximum(counts, tiny))
    return Rare(counts.astype(np.float32), np.where(rare, np.clip(share, 0.0, 1.0), 0.0).astype(np.float32))


def rare_score(model: HMM, coordinates: Coordinates, centre: Coordinates, surplus: jax.Array) -> Coordinates:
    """Derivative of `sum_ij (A_ij / A*_ij - 1) surplus_ij log A_ij`, the first factor held constant."""
    if model.transitions.varies:
        return {name: jnp.zeros_like(value) for name, value in coordinates.items()}
    ratio = model.transitions.constrain(coordinates["transition"]) / _positive(
        model.transitions.constrain(jnp.asarray(centre["transition"]))
    )
    weights = jax.lax.stop_gradient((ratio - 1.0) * surplus)

    def total(at: jax.Array) -> jax.Array:
        return jnp.sum(weights * safe_log(model.transitions.constrain(at)))

    moved = jax.grad(total)(coordinates["transition"])
    return {name: moved if name == "transition" else jnp.zeros_like(value) for name, value in coordinates.items()}


def _positive(values: jax.Array) -> jax.Array:
    return jnp.where(values > 0, values, 1.0)
