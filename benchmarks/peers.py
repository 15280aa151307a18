"""The same exact pass by other libraries: each returns a function to time, whose result is the log likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Params = dict[str, np.ndarray]


def hmmlearn_iteration(params: Params, y: np.ndarray) -> Callable[[], float]:
    """One iteration of expectation maximisation by hmmlearn."""
    from hmmlearn.hmm import GaussianHMM

    n_states = len(params["mean"])
    wide = y.astype(float)

    def run() -> float:
        peer = GaussianHMM(n_states, covariance_type="full", n_iter=1, init_params="", tol=0)
        peer.startprob_ = np.full(n_states, 1 / n_states)
        peer.transmat_, peer.means_, peer.covars_ = params["transition"], params["mean"], params["covariance"]
        peer.fit(wide)
        return float(peer.monitor_.history[0])

    return run


def _dynamax(params: Params, y: np.ndarray) -> tuple[Any, Any, Any]:
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import GaussianHMM

    n_states, dim = params["mean"].shape
    peer = GaussianHMM(n_states, dim)
    given, _ = peer.initialize(
        initial_probs=jnp.full(n_states, 1 / n_states),
        transition_matrix=jnp.asarray(params["transition"]),
        emission_means=jnp.asarray(params["mean"]),
        emission_covariances=jnp.asarray(params["covariance"]),
    )
    return peer, given, jnp.asarray(y)


def dynamax_gradient(params: Params, y: np.ndarray) -> Callable[[], float]:
    """Value and gradient of the log likelihood by dynamax."""
    import jax

    peer, given, values = _dynamax(params, y)
    both = jax.jit(jax.value_and_grad(lambda at: peer.marginal_log_prob(at, values)))
    return lambda: float(jax.block_until_ready(both(given))[0])


def dynamax_e_step(params: Params, y: np.ndarray) -> Callable[[], float]:
    """The E step of dynamax."""
    import jax

    peer, given, values = _dynamax(params, y)
    step = jax.jit(lambda at: peer.e_step(at, values))
    return lambda: float(jax.block_until_ready(step(given))[1])
