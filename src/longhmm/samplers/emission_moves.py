"""Langevin steps for the emission's parameters, all states at once.

`Preconditioned` moves unconstrained coordinates with a constant preconditioner and serves every emission.
`GaussianMetric` moves means and covariances themselves, with the metric of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.evaluate import Statistics
from longhmm.model.hmm import HMM
from longhmm.samplers import recipe
from longhmm.samplers.blocks import EmissionBlocks


class EmissionMove(NamedTuple):
    """New coordinates of the emission, the share of clipped noise directions, and that of refused proposals."""

    coordinates: dict[str, jax.Array]
    clipped: jax.Array
    refused: jax.Array


@dataclass(frozen=True)
class Preconditioned:
    """Unconstrained coordinates u of each state's emission, `D = L L^T` the inverse information, constant:

        u' = u + h D grad log p(u | y) + N(0, 2 h D - h^2 D V D)

    The density is that of u, Jacobian included, and D does not depend on u, so that Gamma = 0 and nothing is ever
    refused. V is the covariance of the gradient's noise, or 0.
    """

    def move(
        self,
        key: jax.Array,
        coordinates: Mapping[str, jax.Array],
        gradient: Mapping[str, jax.Array],
        factor: jax.Array,
        step_size: Any,
        excess: Any,
    ) -> EmissionMove:
        """One step of every block.

        Args:
            coordinates: where the chain is.
            gradient: of the log posterior density of the coordinates.
            factor: `(n, p, p)`, L of every block.
            step_size: h.
            excess: `(n, p, p)`, `L^T V L` of every block, or None.
        """
        blocks = EmissionBlocks.like(coordinates)
        if not blocks.size:
            return EmissionMove({}, jnp.zeros(()), jnp.zeros(()))

        def one(key: jax.Array, at: jax.Array, slope: jax.Array, root: jax.Array, above: Any) -> recipe.Moved:
            return recipe.step(recipe.Factored(root), key, at, slope, step_size, above)

        keys = jax.random.split(key, blocks.n_blocks)
        moved = jax.vmap(one)(keys, blocks.ravel(coordinates), blocks.ravel(gradient), factor, excess)
        return EmissionMove(blocks.unravel(moved.theta), jnp.mean(moved.clipped), jnp.zeros(()))


@dataclass(frozen=True)
class GaussianMetric:
    """The paper's step for Gaussian means and full covariances; other emissions move as `Preconditioned`.

        mean'  = mean + h Sigma grad_mean + sqrt(2 h) L z
        Sigma' = Sigma + h ( Sigma G Sigma + (d + 1) Sigma ) + sqrt(2 h) L W L^T,      Sigma = L L^T

    `G` is the symmetric gradient of the log posterior with `d log p = tr(G dSigma)`, z standard normal, W symmetric
    with variance 1 on the diagonal and 1/2 off it. The correction is `(d + 1) Sigma` in dimension d; the paper prints
    `Sigma`. As in the paper, a proposal that is not positive definite is refused (the state keeps its covariance),
    which changes the target a little at any finite step size: prefer `Preconditioned` for anything but reproduction.
    """

    def applies(self, model: HMM) -> bool:
        """Whether the emission is a Gaussian with full covariance."""
        return model.emission.has_full_covariance

    def move(
        self,
        key: jax.Array,
        model: HMM,
        coordinates: Mapping[str, jax.Array],
        totals: Statistics,
        step_size: Any,
    ) -> EmissionMove:
        """One step; `totals` are expected statistics scaled to all data."""
        params = model.constrain(coordinates)
        free = {name: params[name] for name in model.emission.free_names}
        prior = jax.grad(lambda at: model.emission.log_prior({**params, **at}))(free)
        slopes = {name: totals.natural[name] + prior[name] for name in free}
        root = jnp.linalg.cholesky(params["covariance"])
        mean_key, covariance_key = jax.random.split(key)
        moved, refused = dict(params), jnp.zeros(())
        if "mean" in free:
            noise = jax.random.normal(mean_key, params["mean"].shape, params["mean"].dtype)
            drift = jnp.einsum("kij,kj->ki", params["covariance"], slopes["mean"])
            spread = jnp.einsum("kij,kj->ki", root, noise)
            moved["mean"] = params["mean"] + step_size * drift + jnp.sqrt(2.0 * step_size) * spread
        if "covariance" in free:
            proposal = covariance_proposal(covariance_key, params["covariance"], slopes["covariance"], step_size)
            valid = jnp.all(jnp.linalg.eigvalsh(proposal) > 0, axis=-1)
            moved["covariance"] = jnp.where(valid[:, None, None], proposal, params["covariance"])
            refused = 1.0 - jnp.mean(valid.astype(proposal.dtype))
        found = model.unconstrain(moved)
        return EmissionMove({name: found[name] for name in free}, jnp.zeros(()), refused)


def covariance_proposal(key: jax.Array, covariance: jax.Array, slope: jax.Array, step_size: Any) -> jax.Array:
    """`Sigma'` of `GaussianMetric` for covariances `(K, d, d)` and gradients with respect to their entries."""
    dim = covariance.shape[-1]
    root = jnp.linalg.cholesky(covariance)
    symmetric = 0.5 * (slope + jnp.swapaxes(slope, -1, -2))
    normal = jax.random.normal(key, covariance.shape, covariance.dtype)
    # (Z + Z^T) / 2 has variance 1 on the diagonal and 1/2 off it.
    noise = root @ (0.5 * (normal + jnp.swapaxes(normal, -1, -2))) @ jnp.swapaxes(root, -1, -2)
    drift = covariance @ symmetric @ covariance + (dim + 1.0) * covariance
    proposal = covariance + step_size * drift + jnp.sqrt(2.0 * step_size) * noise
    return 0.5 * (proposal + jnp.swapaxes(proposal, -1, -2))
