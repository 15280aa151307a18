"""The public face of gradients: natural parameters in, a gradient in unconstrained coordinates out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import open_data
from longhmm.model.hmm import HMM
from longhmm.target.coordinates import interior, prior_gradient
from longhmm.target.estimators import Estimator
from longhmm.target.full_data import full_statistics, gradient_from


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
        return gradient_from(model, complete, full_statistics(model, complete, sequences), prior=prior)[1]
    bound = estimator.bind(model, sequences, complete)
    coordinates = jax.tree.map(jnp.asarray, unconstrain(model, complete))
    found = bound.estimate(coordinates, bound.draw(jax.random.key(seed)), prior=prior)
    return _arrays(found.gradient)


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
        return _arrays(_unconstrain(model, _wide(complete)))


def constrain(model: HMM, coordinates: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Unconstrained coordinates to natural parameters, in float64: the inverse of `unconstrain`."""
    with jax.enable_x64(True):
        return _arrays(_constrain(model, _wide(coordinates)))


def log_prior(model: HMM, params: Mapping[str, Any], *, unconstrained: bool = True) -> float:
    """Log prior density: of the unconstrained coordinates (Jacobian included), or of the natural parameters."""
    with jax.enable_x64(True):
        if not unconstrained:
            return float(_natural_log_prior(model, _wide(model.validate(params))))
        return float(_log_prior(model, _wide(unconstrain(model, params))))


def log_prior_gradient(model: HMM, coordinates: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Gradient of the log prior density of the coordinates, Jacobian included, in float64."""
    with jax.enable_x64(True):
        return _arrays(_log_prior_gradient(model, _wide(coordinates)))


def _arrays(found: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in found.items()}


def _wide(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, np.float64) for name, value in arrays.items()}


# Compiled as a whole: one operation at a time, each would be compiled by itself.


@jax.jit
def _unconstrain(model: HMM, params: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    return dict(model.unconstrain(params))


@jax.jit
def _constrain(model: HMM, coordinates: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    return dict(model.constrain(coordinates))


@jax.jit
def _natural_log_prior(model: HMM, params: Mapping[str, jax.Array]) -> jax.Array:
    return model.log_prior(params)


@jax.jit
def _log_prior_gradient(model: HMM, coordinates: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    return prior_gradient(model, coordinates)


@jax.jit
def _log_prior(model: HMM, coordinates: Mapping[str, jax.Array]) -> jax.Array:
    return model.log_prior_unconstrained(coordinates)
