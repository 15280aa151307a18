"""The same exact pass by other libraries: each returns a function to time, whose result is the log likelihood."""

from __future__ import annotations

import importlib.util
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


def pomegranate_pass(params: Params, y: np.ndarray, sequences: int) -> Callable[[], float] | None:
    """Forward-backward by pomegranate over so many sequences of equal length; None where it is not installed."""
    if importlib.util.find_spec("pomegranate") is None:
        return None
    import torch
    from pomegranate.distributions import Normal
    from pomegranate.hmm import DenseHMM

    n_states = len(params["mean"])
    even = np.full(n_states, 1 / n_states, np.float32)
    states = [
        Normal(mean.astype(np.float32), covariance.astype(np.float32))
        for mean, covariance in zip(params["mean"], params["covariance"], strict=True)
    ]
    peer = DenseHMM(states, edges=params["transition"].astype(np.float32), starts=even, ends=even)
    values = torch.tensor(y.reshape(sequences, -1, y.shape[1]).astype(np.float32))

    def run() -> float:
        with torch.no_grad():
            logs = peer.forward_backward(values)[-1]
        # It ends every sequence in a state that it draws evenly, which we do not.
        return float(logs.double().sum()) + sequences * float(np.log(n_states))

    return run
