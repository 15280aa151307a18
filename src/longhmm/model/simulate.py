"""Draw states and observations from a model, many millions in seconds.

A Markov chain is sequential, so it is cut into short pieces, and every piece is walked from every possible state at
once with the same random numbers; the pieces are then joined by following the one state that really occurred. The
work grows K-fold and runs in wide vectors instead of one step at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError

if TYPE_CHECKING:
    from longhmm.model.emissions import Emission
    from longhmm.model.hmm import HMM

PIECE = 512  # steps walked at a time from every state
BLOCK = 128 * PIECE  # steps per block; fixed, so that a longer simulation begins with the shorter one


def simulate(model: HMM, params: Mapping[str, Any], length: int | Sequence[int], seed: int = 0) -> tuple[Any, Any]:
    """Draw `(states, observations)` from a model.

    Args:
        model: the hidden Markov model.
        params: natural parameters, such as `{"transition": ..., "mean": ..., "covariance": ...}`.
        length: number of observations; a list of numbers gives lists of independent sequences.
        seed: equal seeds give equal draws, and a longer simulation begins with the shorter one.

    Returns:
        `states`, `(length,)` int32, and `observations`, `(length, dim)`, float32 or integer.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> states, counts = lh.simulate(model, params, length=1000, seed=1)
        >>> counts.shape
        (1000, 1)
    """
    complete = model.validate(params)
    key = jax.random.key(seed)
    if isinstance(length, (int, np.integer)):
        return _one_sequence(model, complete, int(length), key)
    pairs = [
        _one_sequence(model, complete, int(each), jax.random.fold_in(key, index)) for index, each in enumerate(length)
    ]
    return [states for states, _ in pairs], [observations for _, observations in pairs]


def _one_sequence(
    model: HMM, params: dict[str, np.ndarray], length: int, key: jax.Array
) -> tuple[np.ndarray, np.ndarray]:
    if length < 1:
        raise ModelError(f"length must be at least 1, got {length}.")
    state_key, observation_key = jax.random.split(key)
    states = simulate_states(params["initial"], params["transition"], length, state_key)
    single = {name: jnp.asarray(np.asarray(value), jnp.float32) for name, value in params.items()}
    observations = None
    for index, start in enumerate(range(0, length, BLOCK)):
        piece = states[start : start + BLOCK]
        padded = np.zeros(BLOCK, np.int32)
        padded[: len(piece)] = piece
        key = jax.random.fold_in(observation_key, index)
        values = np.asarray(_observe(model.emission, key, single, jnp.asarray(padded)))
        if observations is None:
            observations = np.empty((length, values.shape[1]), values.dtype)
        observations[start : start + len(piece)] = values[: len(piece)]
    assert observations is not None
    return states, observations


@partial(jax.jit, static_argnames=("emission",))
def _observe(emission: Emission, key: jax.Array, params: Mapping[str, jax.Array], states: jax.Array) -> jax.Array:
    return emission.sample(key, dict(params), states)


def simulate_states(initial: np.ndarray, transition: np.ndarray, length: int, key: jax.Array) -> np.ndarray:
    """Draw a path of the Markov chain, `(length,)` int32."""
    states = np.empty(length, np.int32)
    # Double precision, since a float32 uniform cannot fall into an interval of probability 1e-8.
    with jax.enable_x64(True):
        cumulative = jnp.cumsum(jnp.asarray(transition, jnp.float64), axis=1)
        # The first state: as if drawn by a transition from a state whose row is `initial`.
        row = np.cumsum(np.asarray(initial, np.float64))
        uniform = float(jax.random.uniform(jax.random.fold_in(key, 0), dtype=jnp.float64))
        last = int(np.sum(row <= uniform * row[-1]))
        states[0] = last
        for index, start in enumerate(range(1, length, BLOCK)):
            path = np.asarray(_walk(jax.random.fold_in(key, index + 1), cumulative, jnp.asarray(last)))
            piece = path[: min(BLOCK, length - start)]
            states[start : start + len(piece)] = piece
            last = int(path[-1])
    return states


@jax.jit
def _walk(key: jax.Array, cumulative: jax.Array, last: jax.Array) -> jax.Array:
    """`BLOCK` further states of the chain after state `last`."""
    n_states = cumulative.shape[0]
    n_pieces = BLOCK // PIECE
    uniforms = jax.random.uniform(key, (PIECE, n_pieces), jnp.float64)

    def step(states: jax.Array, uniform: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = cumulative[states]
        following = jnp.sum(rows <= (uniform[:, None] * rows[..., -1])[..., None], axis=-1)
        following = jnp.minimum(following, n_states - 1).astype(jnp.int32)
        return following, following

    every = jnp.broadcast_to(jnp.arange(n_states, dtype=jnp.int32), (n_pieces, n_states))
    ends, paths = jax.lax.scan(step, every, uniforms)
    _, starts = jax.lax.scan(lambda state, end: (end[state], state), last.astype(jnp.int32), ends)
    chosen = jnp.take_along_axis(paths, starts[None, :, None], axis=2)[:, :, 0]
    return chosen.T.reshape(-1)
