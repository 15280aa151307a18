"""Constant preconditioners: how far the posterior reaches in each direction, guessed at the start of a chain.

A preconditioner D that does not move with the chain needs no correction Gamma and never changes the target, however
rough it is. It is found once, at the first point, from a few hundred windows (and again only between blocks of
warm-up, through `refresh` of the samplers that have one).

The guess is the complete-data information: what the data would tell if the states were known. It is never less than
what they do tell, so that steps sized by its inverse are stable; it is larger where states overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import window_marginals
from longhmm.data.layout import Cells
from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.inference.scaling import safe_log
from longhmm.model.hmm import HMM
from longhmm.samplers.blocks import EmissionBlocks
from longhmm.target.coordinates import Flat
from longhmm.target.minibatch import Minibatch, host_rows
from longhmm.target.target import Target

PILOT_WINDOWS, PILOT_LENGTH = 256, 21


class Information(NamedTuple):
    """Complete-data information about one model at one point.

    Attributes:
        emission: `(n, p, p)`, of the emission's coordinates, block by block, prior included.
        counts: `(n,)`, expected number of observations behind each block.
        departures: `(K,)`, expected number of transitions out of each state.
    """

    emission: jax.Array
    counts: jax.Array
    departures: jax.Array


def pilot(target: Target, lags: int) -> Minibatch:
    """A few hundred windows of the data, chosen by a fixed generator and read on the host."""
    sequences = target.sequences
    cells = Cells(sequences.offsets, PILOT_LENGTH)
    count = min(PILOT_WINDOWS, cells.n_cells)
    spread = np.random.default_rng(0).integers(0, cells.n_cells, 4 * count)
    numbers = np.arange(cells.n_cells) if count == cells.n_cells else np.unique(spread)
    if len(numbers) > count:
        numbers = np.sort(np.random.default_rng(1).permutation(numbers)[:count])
    weights = np.full(len(numbers), cells.n_cells / len(numbers), np.float32)
    return Minibatch(*host_rows(sequences, cells, numbers, 0, lags), weights)


@partial(jax.jit, static_argnames=("blocks",))
def information(
    model: HMM, blocks: EmissionBlocks, coordinates: Mapping[str, jax.Array], minibatch: Minibatch
) -> Information:
    """Complete-data information at `coordinates`, scaled from a minibatch to all data."""
    rows, weights = minibatch.rows, minibatch.weights
    params = model.constrain(coordinates)
    logs = model.log_likelihoods(params, rows)
    found = window_marginals(logs, params["transition"], params["initial"], minibatch.layout, None)
    gamma = found.gamma * weights[:, None, None]
    visits = jnp.sum(gamma, axis=(0, 1))
    departures = jnp.sum(found.transitions * weights[:, None, None], axis=(0, 2))
    emission = _outer_scores(model, blocks, coordinates, rows, gamma)
    # One more observation of average information keeps states that the pilot never saw within bounds.
    typical = jnp.sum(emission, axis=0) / jnp.maximum(jnp.sum(visits), 1.0)
    emission = emission + typical + _prior_curvature(model, blocks, coordinates)
    return Information(emission, _block_counts(model, blocks, visits), departures)


def _outer_scores(
    model: HMM, blocks: EmissionBlocks, coordinates: Mapping[str, jax.Array], rows: Rows, gamma: jax.Array
) -> jax.Array:
    """`sum_t gamma_t(k) s_tk s_tk^T` for every block, with `s_tk` the gradient of `log p(y_t | k)`."""
    one_by_one = jax.tree.map(lambda each: jnp.asarray(each).reshape(-1, *each.shape[2:]), rows._replace(states=None))

    def score_of_row(row: Rows, root: jax.Array) -> jax.Array:
        def weighted(block: jax.Array) -> jax.Array:
            at = {**coordinates, **blocks.unravel(block)}
            logs = model.log_likelihoods(model.constrain(at), row)
            return jnp.sum(jnp.where(root > 0, root * jnp.where(root > 0, logs, 0.0), 0.0))

        return jax.grad(weighted)(blocks.ravel(coordinates))

    # A state's parameters form its own block, so that one gradient weighted by square roots serves all states.
    found = jax.vmap(score_of_row)(one_by_one, jnp.sqrt(gamma.reshape(-1, model.n_states)))
    return jnp.einsum("rni,rnj->nij", found, found)


def _prior_curvature(model: HMM, blocks: EmissionBlocks, coordinates: Mapping[str, jax.Array]) -> jax.Array:
    """The positive part of minus the second derivative of the log prior, block by block."""

    def slope(block: jax.Array) -> jax.Array:
        return jax.grad(lambda at: model.log_prior_unconstrained({**coordinates, **blocks.unravel(at)}))(block)

    at = blocks.ravel(coordinates)
    # Priors do not couple states: one derivative along entry j of every block gives column j of all of them.
    along = jnp.eye(blocks.size, dtype=at.dtype)[:, None, :] * jnp.ones((1, blocks.n_blocks, 1), at.dtype)
    columns = jax.vmap(lambda tangent: jax.jvp(slope, (at,), (tangent,))[1])(along)
    hessian = jnp.transpose(columns, (1, 2, 0))
    values, vectors = jnp.linalg.eigh(-0.5 * (hessian + jnp.swapaxes(hessian, 1, 2)))
    return jnp.einsum("nij,nj,nkj->nik", vectors, jnp.maximum(values, 0.0), vectors)


def _block_counts(model: HMM, blocks: EmissionBlocks, visits: jax.Array) -> jax.Array:
    levels = model.emission.state_levels(model.n_states)
    if blocks.n_blocks == levels.max() + 1:
        return jax.ops.segment_sum(visits, jnp.asarray(levels), blocks.n_blocks)
    return jnp.full(blocks.n_blocks, jnp.sum(visits))


@jax.jit
def inverse_factor(matrix: jax.Array) -> jax.Array:
    """L with `L L^T` the inverse of a positive definite matrix `(..., p, p)`, scaled to unit diagonal on the way."""
    size = matrix.shape[-1]
    scale = jax.lax.rsqrt(jnp.diagonal(matrix, axis1=-2, axis2=-1))
    identity = jnp.eye(size, dtype=matrix.dtype)
    # The small ridge bounds the longest step where the pilot hardly tells two coordinates apart.
    unit = matrix * scale[..., :, None] * scale[..., None, :] + 1e-5 * identity
    root = jnp.linalg.cholesky(unit)
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.broadcast_to(identity, root.shape), lower=True)
    return jnp.swapaxes(inverse, -1, -2) * scale[..., :, None]


# Policies for flat vectors ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """`D = I`: every unconstrained coordinate moves on the same scale."""

    def factor(self, model: HMM, target: Target, coordinates: Mapping[str, jax.Array]) -> jax.Array:
        """L with `D = L L^T`, as a diagonal."""
        vector = Flat.like(coordinates).ravel(coordinates)
        return jnp.ones_like(vector)


@dataclass(frozen=True, eq=False)
class Given:
    """A constant D of the user's own.

    Args:
        value: a number; a mapping of coordinate names to arrays (the diagonal of D); or a positive definite matrix
            `(P, P)` over all coordinates, names in sorted order.
    """

    value: Any

    def factor(self, model: HMM, target: Target, coordinates: Mapping[str, jax.Array]) -> jax.Array:
        """L with `D = L L^T`, as a diagonal or as a matrix."""
        flat = Flat.like(coordinates)
        vector = flat.ravel(coordinates)
        if isinstance(self.value, Mapping):
            if set(self.value) != set(coordinates):
                raise ModelError(f"value must name the coordinates {sorted(coordinates)}, got {sorted(self.value)}.")
            diagonal = {name: np.broadcast_to(self.value[name], np.shape(coordinates[name])) for name in coordinates}
            given = np.asarray(flat.ravel(diagonal), np.float64)
        else:
            given = np.asarray(self.value, np.float64)
        if given.ndim == 2 and given.shape == (flat.size, flat.size):
            try:
                return jnp.asarray(np.linalg.cholesky(given), vector.dtype)
            except np.linalg.LinAlgError:
                raise ModelError("value must be a positive definite matrix, got one that is not.") from None
        if given.shape not in ((), (flat.size,)) or not np.all(given > 0):
            raise ModelError(
                f"value must be positive: a number, an array for each coordinate name, or a matrix "
                f"({flat.size}, {flat.size}), got {self.value!r}."
            )
        return jnp.asarray(np.broadcast_to(np.sqrt(given), (flat.size,)), vector.dtype)


@dataclass(frozen=True)
class InverseInformation:
    """D is the inverse of the complete-data information at the chain's first point, so that h near 0.1 suits any data.

    Block diagonal: one block for the rows of the transition matrix, one for each state's emission.
    """

    def factor(self, model: HMM, target: Target, coordinates: Mapping[str, jax.Array]) -> jax.Array:
        """L with `D = L L^T`, as a matrix."""
        blocks, flat = EmissionBlocks.like(coordinates), Flat.like(coordinates)
        found = information(model, blocks, dict(coordinates), pilot(target, model.lags))
        rows = _row_information(model, coordinates["transition"], found.departures)
        # Where each coordinate of each part stands in the flat vector.
        place = flat.unravel(np.arange(flat.size))
        parts = [(place["transition"], np.asarray(inverse_factor(rows)))] if rows.size else []
        if blocks.size:
            parts += zip(np.asarray(blocks.ravel(place)), np.asarray(inverse_factor(found.emission)), strict=True)
        whole = np.zeros((flat.size, flat.size), rows.dtype)
        for at, part in parts:
            whole[np.ix_(at, at)] = part
        return jnp.asarray(whole)


@jax.jit
def _row_information(model: HMM, coordinates: jax.Array, departures: jax.Array) -> jax.Array:
    """Information about the coordinates of all rows from `departures` known transitions, Dirichlet prior included."""
    law = model.transitions.constrain(coordinates)
    concentration = jnp.asarray(model.transitions.concentration, law.dtype)
    prior = jnp.sum(jnp.where(model.transitions.allowed, concentration, 0.0), axis=1)
    counts = jax.lax.stop_gradient(law * (departures + prior)[:, None])
    return jax.hessian(lambda at: -jnp.sum(counts * safe_log(model.transitions.constrain(at))))(coordinates)
