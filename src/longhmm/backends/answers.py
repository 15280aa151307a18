"""Exact answers at given parameters, over data of any length: likelihood, state probabilities, paths."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from longhmm.backends.paths import best_path, sampled_paths
from longhmm.backends.stream import stream, totals
from longhmm.errors import ImpossibleObservationError, check_whole
from longhmm.model.hmm import HMM

if TYPE_CHECKING:
    from jaxtyping import Float, Integer


def log_likelihood(model: HMM, params: Mapping[str, Any], data: Any) -> float:
    """Log likelihood of the data at given parameters, summed over sequences; exact, streamed, in double precision.

    Minus infinity, with a warning that names the place, if some observation is impossible.

    Args:
        model: the hidden Markov model.
        params: natural parameters, `{"transition": (K, K), ...}`; `initial` is optional.
        data: an array `(T,)` or `(T, D)`, a path, a list of these (many sequences), or what `open_data` returned.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> round(lh.log_likelihood(model, params, [0, 1, 9, 7]), 6)
        -9.373309
    """
    model, sequences = model.meet(data)
    try:
        return float(totals(model, model.validate(params), sequences, forward_only=True).log_likelihood)
    except ImpossibleObservationError as impossible:
        warnings.warn(str(impossible), RuntimeWarning, stacklevel=2)
        return float("-inf")


def state_probabilities(
    model: HMM, params: Mapping[str, Any], data: Any, *, causal: bool = False
) -> Float[np.ndarray, "T K"]:
    """`P(x_t = k | all y)`, `(T, K)` float32; with `causal=True`, `P(x_t = k | y up to t)`.

    Many sequences are laid end to end, in order.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> lh.state_probabilities(model, params, [0, 1, 9, 7]).round(3)[2]
        array([0., 1.], dtype=float32)
    """
    model, sequences = model.meet(data)
    probabilities = np.empty((sequences.length, model.n_states), np.float32)
    for own in stream(model, model.validate(params), sequences, forward_only=causal):
        probabilities[own.start : own.stop] = own.probabilities
    return probabilities


def decode(model: HMM, params: Mapping[str, Any], data: Any) -> Integer[np.ndarray, " T"]:
    """The most probable path of states (Viterbi), `(T,)` small integers; many sequences are laid end to end.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> lh.decode(model, params, [0, 1, 9, 7])
        array([0, 0, 1, 1], dtype=int8)
    """
    model, sequences = model.meet(data)
    return best_path(model, params, sequences)


def sample_states(
    model: HMM, params: Mapping[str, Any], data: Any, *, draws: int = 1, seed: int = 0
) -> Integer[np.ndarray, "draws T"]:
    """Paths of states drawn from their posterior `P(x | all y)`, `(draws, T)`: forward filtering, backward sampling.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> lh.sample_states(model, params, [0, 1, 9, 7], draws=3).shape
        (3, 4)
    """
    check_whole("draws", draws, 1)
    model, sequences = model.meet(data)
    keys = (jax.random.fold_in(jax.random.key(seed), draw) for draw in range(draws))
    return np.stack(list(sampled_paths(model, params, sequences, keys)))
