"""The most probable parameter of transitions that were counted, where no closed form says it: rates, for one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.inference.scaling import safe_log


def most_probable(moves: Any, counts: np.ndarray) -> np.ndarray:
    """The parameter, given counts `(K, K)` of transitions between states, all covariates taken to be 0."""
    from scipy.optimize import minimize

    with jax.enable_x64(True):
        return np.asarray(_constrained(moves, minimize(_loss, np.zeros(moves.n_free), (moves, counts), jac=True).x))


# Programs of the module, since one made for each search would be compiled for each.
_constrained = jax.jit(lambda moves, coordinates: moves.constrain(coordinates))


@jax.jit
@jax.value_and_grad
def _loss(coordinates: jax.Array, moves: Any, counts: jax.Array) -> jax.Array:
    parameter = moves.constrain(coordinates)
    return -jnp.sum(counts * safe_log(moves.typical(parameter))) - moves.log_prior(parameter)
