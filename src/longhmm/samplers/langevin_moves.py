"""Langevin steps of SG-RLD: for the rows of the transition matrix, for the emission, and for both in turn.

Rows move in expanded-mean coordinates: `Ahat[i, j] > 0` with independent Gamma(a_ij, 1) priors,
`A[i, j] = Ahat[i, j] / sum_j Ahat[i, j]`, so that row i of A is Dirichlet(a_i). With `D = diag(Ahat)`, for which
Gamma = 1, and n_hat the scaled expected transitions, the drift is

    a_ij - Ahat[i, j] + n_hat[i, j] - A[i, j] n_hat[i, .]

It is `a`, not `a - 1`: Gamma cancels the one. Row i may move at its own constant pace `h_i`, which multiplies D. The
row sums carry no information on A and need not mix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import Statistics
from longhmm.errors import check_whole
from longhmm.model.hmm import HMM
from longhmm.model.transitions.dirichlet import Transitions
from longhmm.samplers import recipe
from longhmm.samplers.preconditioning import EmissionBlocks

# Beyond this mean a Poisson variable is drawn as a normal one: its skewness is 0.01 there. JAX's own draws, accepted by
# differences of large numbers in single precision, are too wide from about ten times this mean on.
MANY = 1e4


class Rows(NamedTuple):
    """What the steps need to know of a model's transitions: `(K, K)` concentrations, and True for moving entries."""

    concentration: Any
    moving: np.ndarray

    @staticmethod
    def of(transitions: Transitions) -> Rows:
        """Forbidden entries and fixed rows do not move."""
        moving = transitions.allowed & transitions.free_rows[:, None]
        return Rows(jnp.where(moving, jnp.asarray(transitions.concentration), 0.0), moving)

    def expand(self, transition: jax.Array) -> jax.Array:
        """Ahat with the given rows and the prior mean of every row sum."""
        total = jnp.where(self.moving.any(axis=1), self.concentration.sum(axis=1), 1.0)
        return transition * total.astype(transition.dtype)[:, None]

    def settle(self, before: jax.Array, moved: jax.Array) -> jax.Array:
        """Entries that do not move keep their values; the others stay large enough to have a logarithm."""
        least = float(np.finfo(before.dtype).tiny) * 1e6
        return jnp.where(self.moving, jnp.maximum(moved, least), before)


def normalised(expanded: jax.Array) -> jax.Array:
    """`A[i, j] = Ahat[i, j] / sum_j Ahat[i, j]`."""
    return expanded / jnp.sum(expanded, axis=1, keepdims=True)


def slope(transitions: Transitions, gradient: jax.Array) -> jax.Array:
    """`Ahat d/dAhat` of a function whose gradient in unconstrained coordinates is given; `(K, K)`.

    For the log likelihood it is `n_hat[i, j] - A[i, j] n_hat[i, .]`. The coordinates are linear in log Ahat (F16), so
    that the same transposed map serves at every point, and for every estimator of the gradient.
    """
    origin = jnp.zeros(transitions.concentration.shape, gradient.dtype)
    slopes: jax.Array = jax.vjp(lambda logs: transitions.unconstrain(jnp.exp(logs)), origin)[1](gradient)[0]
    return slopes


@dataclass(frozen=True)
class Mirror:
    """Euler steps, reflected at zero:

        Ahat' = | Ahat + h_i ( a - Ahat + n_hat[i,j] - A[i,j] n_hat[i,.] ) + N(0, 2 h_i Ahat - h_i^2 B_i) |

    with `B_i` the covariance of the noise in `n_hat[i, j] - A[i, j] n_hat[i, .]` over j, or 0. The reflection leaves
    entries without transitions too large: measured at h = 0.02, their mean is 1.5 % high for a = 1, 12 % for a = 1/2,
    and nearly three times too high for a = 1/10.
    """

    def move(
        self, key: jax.Array, rows: Rows, expanded: jax.Array, drift: jax.Array, pace: jax.Array, covariance: Any
    ) -> tuple[jax.Array, jax.Array]:
        """Ahat after one step, and the share of directions whose noise was clipped.

        Args:
            drift: `(K, K)`, `n_hat[i, j] - A[i, j] n_hat[i, .]`.
            pace: `(K,)`, h_i.
            covariance: `(K, K, K)`, B_i for every row, or None.
        """
        scale, width = jnp.sqrt(expanded), pace[:, None]
        if covariance is None:
            noise = jnp.sqrt(2.0 * width) * jax.random.normal(key, expanded.shape, expanded.dtype)
            clipped = jnp.zeros((), expanded.dtype)
        else:
            # Relative to the injected noise: an almost empty entry then is a direction of its own, clipped alone.
            inverse = jnp.where(rows.moving, 1.0 / jnp.where(rows.moving, scale, 1.0), 0.0)
            relative = covariance * inverse[:, :, None] * inverse[:, None, :]
            identity = jnp.eye(expanded.shape[0], dtype=expanded.dtype)
            remaining = 2.0 * width[:, :, None] * identity - (width**2)[:, :, None] * relative
            noise, shares = jax.vmap(recipe.normal_with)(jax.random.split(key, expanded.shape[0]), remaining)
            clipped = jnp.mean(shares)
        moved = expanded + width * (rows.concentration - expanded + drift) + scale * noise
        return rows.settle(expanded, jnp.abs(moved)), clipped


@dataclass(frozen=True)
class CoxIngersollRoss:
    """The exact step of the square-root diffusion with frozen coefficients; nothing is reflected, nothing biased at 0:

        alpha = a + n_hat[i,j],  beta = 1 + n_hat[i,.] / sum_j Ahat[i,j],  q = exp(-beta h_i)
        M ~ Poisson( beta q Ahat / (1 - q) ),   Ahat' = ((1 - q) / beta) Gamma(alpha + M, 1)

    Needs counts that cannot be negative: not for control variates.
    """

    def move(
        self, key: jax.Array, rows: Rows, expanded: jax.Array, counts: jax.Array, pace: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Ahat after one step; `counts (K, K)` is n_hat and `pace (K,)` is h_i. Its noise is never clipped."""
        poisson_key, gamma_key = jax.random.split(key)
        alpha = jnp.where(rows.moving, rows.concentration + jnp.maximum(counts, 0.0), 1.0)
        beta = 1.0 + jnp.sum(counts, axis=1, keepdims=True) / jnp.sum(expanded, axis=1, keepdims=True)
        remaining = -jnp.expm1(-beta * pace[:, None])
        mean = beta * (1.0 - remaining) * expanded / remaining
        moved = remaining / beta * jax.random.gamma(gamma_key, alpha + poisson(poisson_key, mean))
        return rows.settle(expanded, moved), jnp.zeros((), expanded.dtype)


def poisson(key: jax.Array, mean: jax.Array) -> jax.Array:
    """Poisson draws of any mean, as floating-point numbers; where the mean is large they need not be whole.

    JAX draws them from its own generator alone. That of compiled loops gives the same numbers (see `generator`), so
    that its words may be taken for a key of JAX's.
    """
    count_key, normal_key = jax.random.split(key)
    own = jax.random.wrap_key_data(jax.random.key_data(count_key), impl="threefry2x32")
    few = jax.random.poisson(own, jnp.minimum(mean, MANY)).astype(mean.dtype)
    many = mean + jnp.sqrt(mean) * jax.random.normal(normal_key, mean.shape, mean.dtype)
    return jnp.where(mean > MANY, many, few)


# The emission's parameters, all states at once ----------------------------------------------------------------------


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
    refused. V is the covariance of the gradient's noise, or 0. Serves every emission.
    """

    def move(
        self,
        key: jax.Array,
        coordinates: Mapping[str, jax.Array],
        gradient: Mapping[str, jax.Array],
        factor: jax.Array,
        step_size: Any,
        covariance: Any,
    ) -> EmissionMove:
        """One step of every block; `factor` `(n, p, p)` is L, `covariance` `(n, p, p)` is `L^T V L`, or None."""
        blocks = EmissionBlocks.like(coordinates)
        if not blocks.size:
            return EmissionMove({}, jnp.zeros(()), jnp.zeros(()))

        def one(key: jax.Array, at: jax.Array, slope: jax.Array, root: jax.Array, known: Any) -> recipe.Moved:
            return recipe.step(recipe.Factored(root), key, at, slope, step_size, known)

        keys = jax.random.split(key, blocks.n_blocks)
        moved = jax.vmap(one)(keys, blocks.ravel(coordinates), blocks.ravel(gradient), factor, covariance)
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
        self, key: jax.Array, model: HMM, coordinates: Mapping[str, jax.Array], totals: Statistics, step_size: Any
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

    def symmetric(matrix: jax.Array) -> jax.Array:
        return 0.5 * (matrix + jnp.swapaxes(matrix, -1, -2))

    root = jnp.linalg.cholesky(covariance)
    # (Z + Z^T) / 2 has variance 1 on the diagonal and 1/2 off it.
    noise = symmetric(jax.random.normal(key, covariance.shape, covariance.dtype))
    drift = covariance @ symmetric(slope) @ covariance + (covariance.shape[-1] + 1.0) * covariance
    spread = root @ noise @ jnp.swapaxes(root, -1, -2)
    return symmetric(covariance + step_size * drift + jnp.sqrt(2.0 * step_size) * spread)


# Both in turn -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alternating:
    """Algorithm 2 of the paper: first the transitions, then the emission, each `inner_steps` times on one minibatch.

        Ahat <- mean of Ahat^(1) .. Ahat^(inner_steps),     phi <- mean of phi^(1) .. phi^(inner_steps)

    For reproduction only: the average of a chain is not a draw from its target (its spread is too small), except for
    `inner_steps=1`.
    """

    inner_steps: int = 5

    def __post_init__(self) -> None:
        check_whole("inner_steps", self.inner_steps, 1)

    def move(
        self,
        compiled: bool,
        model: HMM,
        key: jax.Array,
        state: Any,
        look: Callable[[Any], Any],
        rows_step: Callable[..., Any],
        emission_step: Callable[..., Any],
    ) -> tuple[Any, tuple[Any, jax.Array, jax.Array, jax.Array]]:
        """The next state, and of the first point the gradient, the shares of clipped and of refused directions, and
        windows that are impossible there.

        Args:
            compiled: whether `look` may run inside a compiled loop.
            look: gradient and statistics of the minibatch at a state.
            rows_step, emission_step: one step of either block, given key, state and what `look` saw.
        """
        rows_keys, emission_keys = jax.random.split(key, (2, self.inner_steps))

        def with_rows(state: Any, expanded: jax.Array, transition: jax.Array) -> Any:
            return state._replace(expanded=expanded, coordinates={**state.coordinates, "transition": transition})

        def move_rows(state: Any, key: jax.Array) -> tuple[Any, Any]:
            seen = look(state)
            expanded, transition, clipped = rows_step(key, state, seen)
            return with_rows(state, expanded, transition), (expanded, clipped, (seen.gradient, seen.impossible))

        def move_emission(state: Any, key: jax.Array) -> tuple[Any, Any]:
            move = emission_step(key, state, look(state))
            moved = state._replace(coordinates={**state.coordinates, **move.coordinates})
            params = model.constrain(moved.coordinates)
            return moved, ({name: params[name] for name in model.emission.free_names}, move.refused)

        _, (expanded, clipped, seen) = _repeat(compiled, move_rows, state, rows_keys)
        gradient, impossible = jax.tree.map(lambda values: values[0], seen)
        expanded = jnp.mean(expanded, axis=0)
        state = with_rows(state, expanded, model.transitions.unconstrain(normalised(expanded)))
        _, (natural, refused) = _repeat(compiled, move_emission, state, emission_keys)
        # Natural parameters are averaged, as in the paper; supports are convex, so that the mean lies inside.
        natural = {name: jnp.mean(values, axis=0) for name, values in natural.items()}
        state = state._replace(coordinates=model.unconstrain({**model.constrain(state.coordinates), **natural}))
        return state, (gradient, jnp.mean(clipped), jnp.mean(refused), impossible)


def _repeat(compiled: bool, body: Callable[[Any, Any], tuple[Any, Any]], state: Any, keys: jax.Array) -> Any:
    if compiled:
        return jax.lax.scan(body, state, keys)
    found = []
    for key in keys:
        state, one = body(state, key)
        found.append(one)
    return state, jax.tree.map(lambda *each: jnp.stack(each), *found)
