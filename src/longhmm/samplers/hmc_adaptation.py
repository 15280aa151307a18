"""Step size and mass matrix of Hamiltonian Monte Carlo, found in blocks of steps between which a run may be stopped.

BlackJAX's pieces under Stan's schedule: dual averaging throughout, and in growing windows the covariance of the draws.
Where the mass matrix is given, dual averaging alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError
from longhmm.samplers.blocks_of_steps import in_blocks
from longhmm.samplers.contract import Coordinates
from longhmm.target.coordinates import Flat
from longhmm.target.resident_data import ExactPosterior

STEP_SIZE_STEPS = 100  # for the step size alone, where the mass matrix is given
LARGEST_SD = 3.0  # of the first guess of the mass matrix, in unconstrained coordinates
CURVATURE = 0.1  # share of the way that the first guess counts for


class Adapting(NamedTuple):
    """The state of the chain, and BlackJAX's of the dual averaging and of the mass matrix."""

    chain: Any
    averaging: Any
    metric: Any


def adapt(sampler: Any, target: ExactPosterior, key: jax.Array, state: Any) -> Iterator[tuple[Any, float]]:
    """States of a chain on the way to one that is adapted, each with the share of the way that lies behind it."""
    given = sampler.inverse_mass is not None
    if given and sampler.step_size is not None:
        return
    with jax.enable_x64(True):
        posterior = target.at_level(state.level)
    behind = 0.0
    if not given:
        behind = CURVATURE
        for guess, share in curvature(posterior, state.coordinates):
            state = state._replace(inverse_mass=guess, step_size=np.float64(1.0))
            yield state, behind * share
    steps = STEP_SIZE_STEPS if given else sampler.adaptation_steps
    with jax.enable_x64(True):
        adapting = _begin(sampler, state)
    blocks = in_blocks(partial(_block, steps, sampler, target, key), adapting, steps)
    for adapting, done in blocks:
        yield adapting.chain, behind + (1 - behind) * done / steps
    with jax.enable_x64(True):
        size = jnp.exp(adapting.averaging.log_step_size_avg) if sampler.step_size is None else sampler.step_size
        mass = adapting.chain.inverse_mass if given else adapting.metric.inverse_mass_matrix
        yield adapting.chain._replace(step_size=jnp.asarray(size, jnp.float64), inverse_mass=mass), 1.0


def _pieces(sampler: Any) -> tuple[Any, Any]:
    """BlackJAX's adaptation of the step size and of a dense mass matrix."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(sampler.target_acceptance), mass_matrix_adaptation(is_diagonal_matrix=False)


def _begin(sampler: Any, state: Any) -> Adapting:
    averaging, metric = _pieces(sampler)
    size, mass = jnp.asarray(state.step_size, jnp.float64), jnp.asarray(state.inverse_mass)
    chain = state._replace(step_size=size, inverse_mass=mass)
    return Adapting(chain, averaging[0](size), metric[0](mass.shape[0], mass))


@partial(jax.jit, static_argnums=0)
def _block(
    steps: int, sampler: Any, target: ExactPosterior, key: jax.Array, adapting: Adapting, first: int, count: int
) -> Adapting:
    """`count` of the `steps` steps, beginning with number `first`."""
    from blackjax.adaptation.window_adaptation import build_schedule

    (begin_size, update_size, final_size), (_, update_mass, final_mass) = _pieces(sampler)
    keys = jax.random.split(key, steps)
    schedule = jnp.zeros((steps, 2), int) if sampler.inverse_mass is not None else build_schedule(steps)

    def one(number: jax.Array, adapting: Adapting) -> Adapting:
        slow, ends = schedule[number]
        chain, info = sampler.step(target, keys[number], adapting.chain, None)
        averaging = update_size(adapting.averaging, info.acceptance)
        position = Flat.like(chain.coordinates).ravel(chain.coordinates)
        metric = jax.lax.cond(slow, lambda each: update_mass(each, position), lambda each: each, adapting.metric)
        averaging, metric = jax.lax.cond(
            ends,
            lambda one, other: (begin_size(final_size(one)), final_mass(other)),
            lambda one, other: (one, other),
            averaging,
            metric,
        )
        chain = chain._replace(step_size=jnp.exp(averaging.log_step_size), inverse_mass=metric.inverse_mass_matrix)
        return Adapting(chain, averaging, metric)

    return jax.lax.fori_loop(first, first + count, one, adapting)


def curvature(
    posterior: ExactPosterior, coordinates: Coordinates, width: float = 1e-4
) -> Iterator[tuple[np.ndarray, float]]:
    """A first guess of the posterior covariance: the inverse of the curvature here, every eigenvalue made positive.

    Central differences of the exact gradient, two passes per coordinate; the share of them that is done comes along,
    and only the last guess is one.
    """
    flat = Flat.like(coordinates)
    at = flat.ravel_numpy(coordinates)

    def gradient(vector: np.ndarray) -> np.ndarray:
        return flat.ravel_numpy(posterior.log_density_and_gradient(flat.unravel(vector))[1])

    hessian = np.zeros((flat.size, flat.size))
    for index, step in enumerate(width * np.eye(flat.size)):
        hessian[index] = (gradient(at + step) - gradient(at - step)) / (2 * width)
        yield hessian, index / flat.size
    if not np.all(np.isfinite(hessian)):
        raise ModelError(
            "NUTS and HMC must start where the log posterior is finite and smooth, but its second derivatives there "
            "are not finite: start from another point, such as the mode."
        )
    values, vectors = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    yield np.asarray((vectors / np.maximum(np.abs(values), LARGEST_SD**-2)) @ vectors.T), 1.0
