"""Draw states and observations, many millions in seconds: a Markov chain is sequential, so it is cut into short pieces,
and every piece is walked from every possible state at once with the same random numbers; the pieces are then joined by
following the one state that really occurred."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.layout import ladder
from longhmm.errors import check_whole
from longhmm.model.memory import unfold
from longhmm.model.row_by_row import checked_covariates, row_by_row

if TYPE_CHECKING:
    from longhmm.model.hmm import HMM

File = str | os.PathLike[str]
PIECE = 512  # steps walked at a time from every state
BLOCK = 128 * PIECE  # steps per block; fixed, so that a longer simulation begins with the shorter one


def simulate(
    model: HMM, params: Mapping[str, Any], length: int | Sequence[int], seed: int = 0, *, covariates: Any = None
) -> tuple[Any, Any]:
    """Draw `(states, observations)` from a model.

    Args:
        model: the hidden Markov model.
        params: natural parameters, such as `{"transition": ..., "mean": ..., "covariance": ...}`.
        length: number of observations; a list of numbers gives lists of independent sequences.
        seed: equal seeds give equal draws, and a longer simulation begins with the shorter one.
        covariates: `(length, C)`, or a table for formulas, where a model depends on them; a list for several sequences.

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
    complete, key = model.validate(params), jax.random.key(seed)
    if isinstance(length, (int, np.integer)):
        return _filled(_pieces(model, complete, int(length), key, covariates), np.empty, int(length))
    given, pairs = covariates if covariates is not None else [None] * len(length), []
    for index, n in enumerate(map(int, length)):
        own, origin = jax.random.fold_in(key, index), int(sum(length[:index]))
        pairs.append(_filled(_pieces(model, complete, n, own, given[index], origin), np.empty, n))
    return [states for states, _ in pairs], [observations for _, observations in pairs]


def simulate_to_file(
    model: HMM, params: Mapping[str, Any], length: int, file: File, *, states_file: File | None = None, seed: int = 0
) -> None:
    """Draw what `simulate` draws, straight into an .npy file: memory holds one piece at a time.

    Args:
        file: for the observations, `(length,)` where there is one feature, else `(length, dim)`.
        states_file: for the states, if they are wanted.
    """

    def mapped(shape: tuple[int, ...], dtype: Any) -> Any:
        path = states_file if len(shape) == 1 else file
        shape = shape[:1] if shape[-1] == 1 else shape
        return None if path is None else np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)

    for each in _filled(_pieces(model, model.validate(params), length, jax.random.key(seed)), mapped, length):
        if each is not None:
            each.flush()


def _filled(pieces: Iterator[Any], made: Callable[[tuple[int, ...], Any], Any], length: int) -> tuple[Any, Any]:
    """States and observations, in arrays that are made when the first piece is there; None for what is not wanted."""
    found: list[Any] = []
    for start, *parts in pieces:
        found = found or [made((length, *part.shape[1:]), part.dtype) for part in parts]
        for part, whole in zip(parts, found, strict=True):
            if whole is not None:
                whole[start : start + len(part)] = part.reshape(len(part), *whole.shape[1:])
    return found[0], found[1]


def _pieces(
    model: HMM, params: Mapping[str, np.ndarray], length: int, key: jax.Array, covariates: Any = None, origin: int = 0
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Where each piece begins, its states, and its observations."""
    check_whole("length", length, 1)
    memory, model, params = unfold(model, params)
    if covariates is not None or model.transitions.varies or model.n_covariates or model.lags or model.emission.couples:
        rows = checked_covariates(model, covariates, length, origin)
        for start, states, values in row_by_row(model, params, rows, key, min(BLOCK, ladder(length))):
            yield start, memory.path(states), values
        return
    state_key, observation_key = jax.random.split(key)
    single = {name: jnp.asarray(np.asarray(value), jnp.float32) for name, value in params.items()}
    for index, padded in enumerate(state_pieces(params["initial"], params["transition"], length, state_key)):
        start = index * BLOCK
        count = min(BLOCK, length - start)
        one = jax.random.fold_in(observation_key, index)
        values = np.asarray(_observe(model.emission, one, single, jnp.asarray(padded)))
        yield start, memory.path(padded[:count]), values[:count]


_observe = jax.jit(lambda emission, key, params, states: emission.sample(key, dict(params), states))


def state_pieces(initial: np.ndarray, transition: np.ndarray, length: int, key: jax.Array) -> Iterator[np.ndarray]:
    """A path of the Markov chain in pieces of `BLOCK` states, int32; the last piece is as long as the others."""
    # Double precision, since a float32 uniform cannot fall into an interval of probability 1e-8.
    with jax.enable_x64(True):
        cumulative = jnp.cumsum(jnp.asarray(transition, jnp.float64), axis=1)
        # The first state: as if drawn by a transition from a state whose row is `initial`.
        row = np.cumsum(np.asarray(initial, np.float64))
        uniform = float(jax.random.uniform(jax.random.fold_in(key, 0), dtype=jnp.float64))
        last = int(np.sum(row <= uniform * row[-1]))
    for index in range(-(-length // BLOCK)):
        with jax.enable_x64(True):
            path = np.asarray(_walk(jax.random.fold_in(key, index + 1), cumulative, jnp.asarray(last)))
        # The state before the walk comes first, so that the last step of the walk begins the next piece.
        yield np.concatenate([[last], path[:-1]]).astype(np.int32)
        last = int(path[-1])


@jax.jit
def _walk(key: jax.Array, cumulative: jax.Array, last: jax.Array) -> jax.Array:
    """`BLOCK` further states of the chain after state `last`."""
    n_states, n_pieces = cumulative.shape[0], BLOCK // PIECE
    uniforms = jax.random.uniform(key, (PIECE, n_pieces), jnp.float64)

    def step(states: jax.Array, uniform: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = cumulative[states]
        following = jnp.sum(rows <= (uniform[:, None] * rows[..., -1])[..., None], axis=-1)
        following = jnp.minimum(following, n_states - 1).astype(jnp.int32)
        return following, following

    every = jnp.broadcast_to(jnp.arange(n_states, dtype=jnp.int32), (n_pieces, n_states))
    ends, paths = jax.lax.scan(step, every, uniforms)
    _, starts = jax.lax.scan(lambda state, end: (end[state], state), last.astype(jnp.int32), ends)
    return jnp.take_along_axis(paths, starts[None, :, None], axis=2)[:, :, 0].T.reshape(-1)
