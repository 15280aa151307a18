"""The public face of gradients: natural parameters in, a gradient in unconstrained coordinates out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import open_data
from longhmm.gradients.coordinates import interior
from longhmm.gradients.estimators import Estimator
from longhmm.gradients.full_data import log_posterior_and_gradient
from longhmm.model.hmm import HMM


def gradient(
    model: HMM,
    params: Mapping[str, Any],
    data: Any,
    *,
    prior: bool = True,
    estimator: Estimator | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Gradient of the log posterior (or of the log likelihood) in unconstrained coordinates.

    Args:
        model: the hidden Markov model.
        params: natural parameters at which the gradient is taken.
        data: an array, a path, a list of these, or what `open_data` returned.
        prior: False leaves the prior and its Jacobian out.
        estimator: None for the exact gradient in double precision, or a policy such as `Buffered(...)` for an estimate
            from one random minibatch.
        seed: chooses the minibatch.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> slope = lh.gradient(model, params, [0, 1, 9, 7], prior=False)
        >>> sorted(slope), slope["transition"].shape
        (['rate', 'transition'], (2,))
    """
    sequences = open_data(data)
    model = model.resolve(sequences) if prior else model
    complete = interior(model, params)
    if estimator is None:
        return log_posterior_and_gradient(model, complete, sequences, prior=prior)[1]
    bound = estimator.bind(model, sequences, complete)
    coordinates = jax.tree.map(jnp.asarray, unconstrain(model, complete))
    found = bound.estimate(coordinates, bound.draw(jax.random.key(seed)), prior=prior)
    return jax.tree.map(np.asarray, found.gradient)


def unconstrain(model: HMM, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Natural parameters to unconstrained coordinates, in float64; constants and the initial law have none.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> lh.unconstrain(model, params)["transition"].round(3)
        array([ 1.554, -0.98 ])
    """
    complete = interior(model, params)
    with jax.enable_x64(True):
        found = model.unconstrain({name: jnp.asarray(value) for name, value in complete.items()})
        return jax.tree.map(np.asarray, found)


def constrain(model: HMM, coordinates: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Unconstrained coordinates to natural parameters, in float64: the inverse of `unconstrain`."""
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(np.asarray(value), jnp.float64) for name, value in coordinates.items()}
        return jax.tree.map(np.asarray, model.constrain(wide))


def log_prior(model: HMM, params: Mapping[str, Any], *, unconstrained: bool = True) -> float:
    """Log prior density: of the unconstrained coordinates (Jacobian included), or of the natural parameters."""
    with jax.enable_x64(True):
        if not unconstrained:
            complete = model.validate(params)
            return float(model.log_prior({name: jnp.asarray(value) for name, value in complete.items()}))
        return float(model.log_prior_unconstrained(jax.tree.map(jnp.asarray, unconstrain(model, params))))
