"""Constant preconditioners, which never change the target: the inverse information, guessed at a chain's first point.

The guess is the complete-data information, from a few hundred windows: what the data would tell if the states were
known. That is never less than what they do tell, so that steps sized by its inverse are stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.evaluate import chunk_statistics, lower
from longhmm.backends.protocol import Wanted
from longhmm.data.layout import Partition
from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.inference.scaling import safe_log
from longhmm.model import covariance
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.target.coordinates import Flat
from longhmm.target.minibatch import Minibatch, host_rows
from longhmm.target.target import Target

PILOT_WINDOWS, PILOT_LENGTH = 256, 21


class EmissionBlocks(NamedTuple):
    """The emission's coordinates as `n_blocks` small vectors of `size` numbers: one per state, or per group of tied
    states; all in one block if they do not share a leading axis over states."""

    each: Flat  # of one block
    n_blocks: int
    alone: bool  # whether there is one block without an axis over states

    @staticmethod
    def like(coordinates: Params) -> EmissionBlocks:
        whole = Flat.like({name: value for name, value in coordinates.items() if name != "transition"})
        leading = {shape[:1] for _, shape in whole.shapes}
        if len(leading) != 1 or leading == {()}:
            return EmissionBlocks(whole, 1, True)
        return EmissionBlocks(Flat(tuple((name, shape[1:]) for name, shape in whole.shapes)), leading.pop()[0], False)

    @property
    def size(self) -> int:
        return self.each.size

    def ravel(self, coordinates: Params) -> Any:
        """`(n_blocks, size)`; leading axes that all coordinates share, such as one over windows, are kept."""
        if not self.each.shapes:
            return jnp.zeros((self.n_blocks, 0))
        vectors = self.each.ravel(coordinates)
        return vectors[..., None, :] if self.alone else vectors

    def unravel(self, blocks: Any) -> dict[str, Any]:
        return self.each.unravel(blocks[..., 0, :] if self.alone else blocks)


class Information(NamedTuple):
    """Complete-data information about one model at one point, priors included."""

    emission: Array  # `(n, p, p)`, of the emission's coordinates, block by block
    counts: Array  # `(n,)`, expected number of observations behind each block
    departures: Array  # `(K,)`, expected number of transitions out of each state
    transition: Array  # `(q, q)`, of the coordinates of transitions


def pilot(target: Target) -> Minibatch:
    """A few hundred windows of the data, chosen by a fixed generator and read on the host."""
    sequences = target.sequences
    blocks = Partition(sequences.offsets, PILOT_LENGTH)
    count = min(PILOT_WINDOWS, blocks.n_blocks)
    spread = np.random.default_rng(0).integers(0, blocks.n_blocks, 4 * count)
    numbers = np.arange(blocks.n_blocks) if count == blocks.n_blocks else np.unique(spread)
    if len(numbers) > count:
        numbers = np.sort(np.random.default_rng(1).permutation(numbers)[:count])
    weights = np.full(len(numbers), blocks.n_blocks / len(numbers), np.float32)
    return Minibatch(*host_rows(sequences, blocks, numbers, 0, target.model.lags), weights)


@partial(jax.jit, static_argnames=("blocks",))
def information(model: HMM, blocks: EmissionBlocks, coordinates: Params, minibatch: Minibatch) -> Information:
    """Complete-data information at `coordinates`, scaled from a minibatch to all data."""
    rows, weights, params = minibatch.rows, minibatch.weights, model.constrain(coordinates)
    potentials, _ = lower(model, params, rows, by_row=True)
    found = chunk_statistics(potentials, minibatch.layout, Wanted(per_chunk=True))
    gamma = found.gamma.reshape(*rows.values.shape[:2], *found.gamma.shape[1:])
    gamma = gamma * weights.reshape(-1, *(1,) * (gamma.ndim - 1))
    visits = jnp.sum(gamma, axis=tuple(range(gamma.ndim - 1)))
    departures = jnp.sum(found.transitions * weights[:, None, None], axis=(0, 2))
    emission = _outer_scores(model, blocks, coordinates, rows, gamma)
    # One more observation of average information keeps states that the pilot never saw within bounds.
    typical = jnp.sum(emission, axis=0) / jnp.maximum(jnp.sum(visits), 1.0)
    emission = emission + typical + _prior_curvature(model, blocks, coordinates)
    leaving = departures
    if model.transitions.varies:
        leaving = jnp.sum(found.pairs, axis=2) * jnp.repeat(weights, rows.values.shape[1])[:, None]
    transition = _transition_information(model, coordinates["transition"], rows.covariates, leaving)
    levels, counts = model.emission.state_levels(model.n_states), jnp.full(blocks.n_blocks, jnp.sum(visits))
    if blocks.n_blocks == levels.max() + 1:
        counts = jax.ops.segment_sum(visits, jnp.asarray(levels), blocks.n_blocks)
    return Information(emission, counts, departures, transition)


def _outer_scores(model: HMM, blocks: EmissionBlocks, coordinates: Params, rows: Rows, gamma: Array) -> Array:
    """`sum_t gamma_t(k) s_tk s_tk^T` for every block, with `s_tk` the gradient of `log p(y_t | k)`."""
    one_by_one = jax.tree.map(lambda each: jnp.asarray(each).reshape(-1, *each.shape[2:]), rows._replace(states=None))
    root = jnp.sqrt(gamma)
    if model.emission.couples:  # of the states before, the mean is taken
        total = jnp.sum(gamma, axis=-2, keepdims=True)
        root = gamma / jnp.sqrt(jnp.where(total > 0, total, 1.0))

    def score_of_row(row: Rows, root: Array) -> Array:
        def weighted(block: Array) -> Array:
            logs = model.log_likelihoods(model.constrain({**coordinates, **blocks.unravel(block)}), row)
            return jnp.sum(jnp.where(root > 0, root * jnp.where(root > 0, logs, 0.0), 0.0))

        return jax.grad(weighted)(blocks.ravel(coordinates))

    # A state's parameters form its own block, so that one gradient weighted by square roots serves all states.
    found = jax.vmap(score_of_row)(one_by_one, root.reshape(-1, *root.shape[2:]))
    return jnp.einsum("rni,rnj->nij", found, found)


def _prior_curvature(model: HMM, blocks: EmissionBlocks, coordinates: Params) -> Array:
    """The positive part of minus the second derivative of the log prior by block: priors do not couple states."""

    def density(at: Array) -> Array:
        return model.log_prior_unconstrained({**coordinates, **blocks.unravel(at)})

    return _positive_part(-jnp.einsum("ijik->ijk", jax.hessian(density)(blocks.ravel(coordinates))))


def _positive_part(matrix: Array) -> Array:
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + jnp.swapaxes(matrix, -1, -2)))
    return jnp.einsum("...ij,...j,...kj->...ik", vectors, jnp.maximum(values, 0.0), vectors)


def _transition_information(model: HMM, u: Array, covariates: Any, leaving: Array) -> Array:
    """Of the coordinates of transitions, prior included; `leaving` is the expected transitions out of each state:
    `(K,)`, or `(n, K)` where matrices follow covariates."""
    moves: Any = model.transitions
    if moves.dirichlet:
        prior = jnp.sum(jnp.where(moves.allowed, jnp.asarray(moves.concentration, u.dtype), 0.0), axis=1)
        leaving, matrices = leaving + prior, moves.constrain
    else:
        seen = jnp.asarray(covariates).reshape(-1, moves.n_covariates) if moves.varies else None

        def matrices(at: Array) -> Array:
            parameter = moves.constrain(at)
            return moves.matrices(parameter, seen) if moves.varies else moves.typical(parameter)

    counts = jax.lax.stop_gradient(matrices(u) * leaving[..., None])
    known = jax.hessian(lambda at: -jnp.sum(counts * safe_log(matrices(at))))(u)
    if moves.dirichlet:
        return known

    def density(at: Array) -> Array:
        parameter = moves.constrain(at)
        return moves.log_prior(parameter) + moves.log_jacobian(parameter)

    return _positive_part(known) + _positive_part(-jax.hessian(density)(u))


@jax.jit
def inverse_factor(matrix: Array) -> Array:
    """L with `L L^T` the inverse of a positive definite matrix `(..., p, p)`, scaled to unit diagonal on the way."""
    size = matrix.shape[-1]
    scale = jax.lax.rsqrt(jnp.diagonal(matrix, axis1=-2, axis2=-1))
    # The small ridge bounds the longest step where the pilot hardly tells two coordinates apart.
    unit = matrix * scale[..., :, None] * scale[..., None, :] + 1e-5 * jnp.eye(size, dtype=matrix.dtype)
    return jnp.swapaxes(covariance.inverse_factor(unit), -1, -2) * scale[..., :, None]


# Policies for flat vectors: L with `D = L L^T`, as a diagonal or as a matrix ----------------------------------------


@dataclass(frozen=True)
class Identity:
    """`D = I`: every unconstrained coordinate moves on the same scale."""

    def factor(self, target: Target, u: Params) -> Array:
        return jnp.ones_like(Flat.like(u).ravel(u))


@dataclass(frozen=True, eq=False)
class Given:
    """A constant D of the user's own.

    Args:
        value: a number; a mapping of coordinate names to arrays (the diagonal of D); or a positive definite matrix
            `(P, P)` over all coordinates, names in sorted order.
    """

    value: Any

    def factor(self, target: Target, u: Params) -> Array:
        flat, given = Flat.like(u), self.value
        dtype = flat.ravel(u).dtype
        if isinstance(given, Mapping):
            if set(given) != set(u):
                raise ModelError(f"value must name the coordinates {sorted(u)}, got {sorted(given)}.")
            given = flat.ravel_numpy({name: np.broadcast_to(given[name], np.shape(u[name])) for name in u})
        given = np.asarray(given, np.float64)
        if given.ndim == 2 and given.shape == (flat.size, flat.size):
            try:
                return jnp.asarray(np.linalg.cholesky(given), dtype)
            except np.linalg.LinAlgError:
                raise ModelError("value must be a positive definite matrix, got one that is not.") from None
        if given.shape not in ((), (flat.size,)) or not np.all(given > 0):
            raise ModelError(
                f"value must be positive: a number, an array for each coordinate name, or a matrix "
                f"({flat.size}, {flat.size}), got {self.value!r}."
            )
        return jnp.asarray(np.broadcast_to(np.sqrt(given), (flat.size,)), dtype)


@dataclass(frozen=True)
class InverseInformation:
    """D is the inverse of the complete-data information at the chain's first point, so that h near 0.1 suits any data:
    one block for the transitions, and one for each state's emission."""

    def factor(self, target: Target, u: Params) -> Array:
        blocks, flat = EmissionBlocks.like(u), Flat.like(u)
        found = information(target.model, blocks, dict(u), pilot(target))
        # Where each coordinate of each part stands in the flat vector.
        place, rows = flat.unravel(np.arange(flat.size)), found.transition
        parts = [(place["transition"], np.asarray(inverse_factor(rows)))] if rows.size else []
        if blocks.size:
            parts += zip(np.asarray(blocks.ravel(place)), np.asarray(inverse_factor(found.emission)), strict=True)
        whole = np.zeros((flat.size, flat.size), rows.dtype)
        for at, part in parts:
            whole[np.ix_(at, at)] = part
        return jnp.asarray(whole)


Preconditioner = Identity | Given | InverseInformation
