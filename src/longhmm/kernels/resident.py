"""The exact log posterior as one compiled function, for samplers that call it thousands of times.

One evaluation is one pass over all data inside one program. Its derivative is Fisher's identity (F8): expected
statistics at the same point, so nothing is differentiated through the recursions.

Edges of chunks are guessed from neighbouring rows and the guess is proved, as `kernels.proofs` explains: first from a
short reach, then from a whole chunk. Where both fail, the map that each chunk applies to messages is computed for
every state, and messages are carried through these maps from end to end, which needs no guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.kernels.edges import UNIFORM_SHARE, Edges, log_filtered
from longhmm.kernels.lanes import LaneBlock, Lanes, check_rows
from longhmm.kernels.proofs import TOLERANCE
from longhmm.kernels.statistics import Statistics, free_emission
from longhmm.messages.backward import backward_message
from longhmm.messages.forward import filter_messages
from longhmm.messages.forward_backward import forward_backward
from longhmm.messages.markov import stationary
from longhmm.messages.scaling import log_sum_exp, safe_log
from longhmm.model.hmm import HMM

Params = Mapping[str, jax.Array]
SHORT, WHOLE_CHUNK, CARRIED = 0, 1, 2  # how edges are found, in the order in which it is tried
# Messages in single precision never agree better than to rounding.
TOLERANCES = {np.dtype(np.float64): TOLERANCE, np.dtype(np.float32): 1e-5}


class Program(NamedTuple):
    """What is constant in a compiled pass: the model, the layout, and whether rows are observed in part."""

    model: HMM
    lanes: Lanes
    partial_rows: bool
    dtype: np.dtype

    def block(self, stacked: LaneBlock | None, index: jax.Array) -> LaneBlock:
        """Block `index`, from the device or, without stacked blocks, read on the host."""
        if stacked is not None:
            return jax.tree.map(lambda part: part[index], stacked)
        # The callback is handed a number and returns NumPy arrays: it must not wait for the program that waits for it.
        return jax.pure_callback(lambda at: self.lanes.read(int(at)), self.lanes.shapes(), index)

    def log_likelihoods(self, params: Params, block: LaneBlock) -> jax.Array:
        """`(n, lanes + 2, K)`; 0 where missing and beyond the end of a chunk."""
        inside = jnp.arange(block.values.shape[0])[:, None] < block.length
        values, observed = block.values, jnp.broadcast_to(inside[..., None], block.values.shape)
        if jnp.issubdtype(values.dtype, jnp.floating):
            values, observed = values.astype(self.dtype), observed & ~jnp.isnan(values)
        return self.model.log_likelihoods(params, values, observed, block.states, partial=self.partial_rows)


class Joint(NamedTuple):
    """Messages at the right edge of a block's last chunk, `(K,)` each, with which the next block proves its own."""

    leaving: jax.Array
    after: jax.Array


class ResidentPosterior:
    """Log posterior density of unconstrained coordinates, up to the evidence; `posterior(u)` may be differentiated.

    It may be called inside compiled code, under `jax.enable_x64(True)`.

    Args:
        model: the hidden Markov model; default priors are scaled to the data.
        sequences: the data; kept by the device where they fit, otherwise read in every pass.
        dtype: precision of the recursions. Sums are always float64.
    """

    def __init__(self, model: HMM, sequences: Sequences, dtype: Any = np.float64) -> None:
        self.model = model.resolve(sequences)
        partial_rows = check_rows(self.model, sequences)
        lanes = Lanes(sequences, self.model.n_states)
        self.program = Program(self.model, lanes, partial_rows, np.dtype(dtype))
        self.level = SHORT
        with jax.enable_x64(True):
            self.data = lanes.stack() if lanes.fits else None

    def __call__(self, coordinates: Params) -> jax.Array:
        with jax.enable_x64(True):
            return _log_posterior(self.program, self.data, self.level, _wide(coordinates))

    def value_and_gradient(self, coordinates: Params) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The log posterior and its gradient by name, from one pass."""
        with jax.enable_x64(True):
            return _value_and_gradient(self.program, self.data, self.level, _wide(coordinates))

    def statistics(self, coordinates: Params) -> Statistics:
        """Expected statistics of all data, summed."""
        with jax.enable_x64(True):
            params = self.model.constrain(_wide(coordinates))
            return _full_pass(self.program, self.data, self.level, params)[0]

    def settle(self, coordinates: Params) -> None:
        """Find out how edges are to be found near these coordinates, so that passes try nothing in vain."""
        with jax.enable_x64(True):
            params = self.model.constrain(_wide(coordinates))
            self.level = int(_full_pass(self.program, self.data, SHORT, params)[1])


def _wide(coordinates: Params) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value, jnp.float64) for name, value in coordinates.items()}


@partial(jax.jit, static_argnums=0)
def _log_posterior(program: Program, data: LaneBlock | None, level: int, coordinates: Params) -> jax.Array:
    params = program.model.constrain(coordinates)
    return _log_likelihood(program, data, level, params) + program.model.log_prior_unconstrained(coordinates)


@partial(jax.jit, static_argnums=0)
def _value_and_gradient(
    program: Program, data: LaneBlock | None, level: int, coordinates: Params
) -> tuple[jax.Array, dict[str, jax.Array]]:
    return jax.value_and_grad(_log_posterior, argnums=3)(program, data, level, dict(coordinates))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _log_likelihood(program: Program, data: LaneBlock | None, level: int, params: Params) -> jax.Array:
    return _full_pass(program, data, level, params)[0].log_likelihood


def _log_likelihood_forward(
    program: Program, data: LaneBlock | None, level: int, params: Params
) -> tuple[jax.Array, dict[str, jax.Array]]:
    statistics = _full_pass(program, data, level, params)[0]
    slopes = {name: jnp.zeros_like(value) for name, value in params.items()}
    # d/dA of n_ij log A_ij is n_ij / A_ij, and n_ij is 0 where A_ij is.
    for name, counts in (("transition", statistics.transitions), ("initial", statistics.first)):
        slopes[name] = counts / jnp.where(params[name] > 0, params[name], 1.0)
    return statistics.log_likelihood, {**slopes, **statistics.emission}


def _log_likelihood_backward(program: Program, slopes: dict[str, jax.Array], outer: jax.Array) -> tuple[Any, ...]:
    return None, None, jax.tree.map(lambda slope: outer * slope, slopes)


_log_likelihood.defvjp(_log_likelihood_forward, _log_likelihood_backward)


# Passes -----------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def _full_pass(program: Program, data: LaneBlock | None, level: int, params: Params) -> tuple[Statistics, jax.Array]:
    """Statistics of all data, and the level at which the edges were proved."""
    narrow = {name: jnp.asarray(value).astype(program.dtype) for name, value in params.items()}
    first = jnp.where(program.lanes.reach > 0, jnp.asarray(level, jnp.int32), SHORT)
    one_piece = program.lanes.reach == program.lanes.chunk_length

    def again(carry: tuple[jax.Array, jax.Array, Statistics]) -> jax.Array:
        level, gap, statistics = carry
        # Without a log likelihood there is nothing to prove.
        return (level < CARRIED) & ~(gap <= TOLERANCES[program.dtype]) & ~jnp.isnan(statistics.log_likelihood)

    def run(carry: tuple[jax.Array, jax.Array, Statistics]) -> tuple[jax.Array, jax.Array, Statistics]:
        level = carry[0] + 1
        level = jnp.where(one_piece & (level == WHOLE_CHUNK), CARRIED, level)
        return level, *_pass(program, data, level, narrow)

    # The loop begins with an attempt that never counts, so that the pass is compiled once.
    nothing = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(_pass, program, data, first, narrow)[1]
    )
    level, _, statistics = jax.lax.while_loop(again, run, (first - 1, jnp.asarray(jnp.inf), nothing))
    return statistics, level


@partial(jax.jit, static_argnums=0)
def _pass(program: Program, data: LaneBlock | None, level: jax.Array, params: Params) -> tuple[jax.Array, Statistics]:
    """One pass: the largest disagreement between neighbouring chunks, and the statistics."""
    n_states, n_blocks = program.model.n_states, program.lanes.n_blocks
    shape = (n_blocks, n_states, program.lanes.lanes)
    given = Edges(jnp.zeros(shape, program.dtype), jnp.zeros(shape, program.dtype))
    if program.lanes.reach:
        given = jax.lax.cond(level == CARRIED, lambda: _carried_edges(program, data, params), lambda: given)

    def step(carry: tuple[Joint, jax.Array, Statistics], inputs: tuple[jax.Array, Edges]) -> tuple[Any, None]:
        joint, gap, total = carry
        index, edges = inputs
        joint, new_gap, statistics = _block_pass(program, data, level, params, joint, index, edges)
        return (joint, jnp.maximum(gap, new_gap), jax.tree.map(jnp.add, total, statistics)), None

    joint = Joint(jnp.zeros(n_states, program.dtype), jnp.zeros(n_states, program.dtype))
    wide = jnp.result_type(float)
    total = Statistics(
        jnp.zeros(n_states, wide),
        jnp.zeros((n_states, n_states), wide),
        {name: jnp.zeros(value.shape, wide) for name, value in free_emission(program.model, params).items()},
        jnp.zeros((), wide),
    )
    carry = (joint, jnp.zeros((), wide), total)
    (_, gap, total), _ = jax.lax.scan(step, carry, (jnp.arange(n_blocks), given))
    return gap, total


def _block_pass(
    program: Program,
    data: LaneBlock | None,
    level: jax.Array,
    params: Params,
    joint: Joint,
    index: jax.Array,
    given: Edges,
) -> tuple[Joint, jax.Array, Statistics]:
    block = program.block(data, index)
    initial, transition = params["initial"], params["transition"]
    # One evaluation of the density serves the recursion and, later, the score.
    free = free_emission(program.model, params)
    rows, pull = jax.vjp(lambda values: program.log_likelihoods({**params, **values}, block), free)
    logs = jnp.swapaxes(rows, 1, 2)
    edges = given
    if program.lanes.reach:
        guess = partial(_guessed_edges, program.lanes.reach, level, initial, transition, logs, block)
        edges = jax.lax.cond(level < CARRIED, guess, lambda: given)
    own = slice(1, -1)
    at_start, length = block.at_start[own], block.length[own]
    inside = jnp.arange(logs.shape[0])[:, None] < length
    smoothed = forward_backward(edges.before, edges.after, at_start, initial, transition, logs[:, :, own], inside)
    leaving = jnp.concatenate([joint.leaving[:, None], smoothed.log_leaving], axis=1)
    after = jnp.concatenate([joint.after[:, None], edges.after], axis=1)
    filtered_gap = _projective_gap(_moved(leaving[:, :-1], transition), _moved(edges.before, transition))
    smoothed_gap = _law_gap(leaving[:, :-1] + after[:, :-1], edges.before + smoothed.log_entering)
    gap = jnp.max(jnp.where(at_start, 0.0, jnp.maximum(filtered_gap, smoothed_gap)))
    gamma = jnp.where(inside[:, None, :], smoothed.gamma, 0.0)
    score = pull(jnp.pad(jnp.swapaxes(gamma, 1, 2), ((0, 0), (1, 1), (0, 0))))[0]
    statistics = Statistics(
        jnp.sum(jnp.where(at_start, gamma[0], 0.0), axis=1),
        jnp.sum(smoothed.transitions, axis=2),
        score,
        jnp.sum(jnp.where(inside, smoothed.log_normaliser, 0.0).astype(jnp.result_type(float))),
    )
    wide = jax.tree.map(lambda part: part.astype(jnp.result_type(float)), statistics)
    return Joint(leaving[:, -1], after[:, -1]), gap.astype(jnp.result_type(float)), wide


# Edges ------------------------------------------------------------------------------------------------------------


def _guessed_edges(
    reach: int, level: jax.Array, initial: jax.Array, transition: jax.Array, logs: jax.Array, block: LaneBlock
) -> Edges:
    """Edges of the inner lanes from the last rows of the lane to the left and the first rows of the one to the right.

    Both are worked through in pieces of `reach` rows: one piece, or all of the chunk.
    """
    shape, n_pieces = (logs.shape[1], logs.shape[2] - 2), logs.shape[0] // reach
    law = jnp.log((1 - UNIFORM_SHARE) * stationary(transition) + UNIFORM_SHARE / shape[0])
    left, right = logs[:, :, :-2], logs[:, :, 2:]

    def piece_of(part: jax.Array, piece: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(part, piece * reach, reach)

    def forward(piece: jax.Array, message: jax.Array) -> jax.Array:
        at_start = block.at_start[:-2] & (piece == 0)
        return log_filtered(message, at_start, initial, transition, piece_of(left, piece))[-1]

    def backward(count: jax.Array, message: jax.Array) -> jax.Array:
        message = backward_message(message, transition, piece_of(right, last - count))
        return jnp.where(jnp.all(jnp.isneginf(message), axis=0), 0.0, message)

    last = jnp.where(level == SHORT, 0, n_pieces - 1)
    before = jax.lax.fori_loop(n_pieces - 1 - last, n_pieces, forward, jnp.broadcast_to(law[:, None], shape))
    after = jax.lax.fori_loop(0, last + 1, backward, jnp.zeros(shape, logs.dtype))
    return Edges(before, jnp.where(block.at_start[2:], 0.0, after))


def _carried_edges(program: Program, data: LaneBlock | None, params: Params) -> Edges:
    """All edges, `(n_blocks, K, lanes)`, without a guess: messages carried through the map of every chunk."""
    transition, n_states = params["transition"], program.model.n_states

    def maps(index: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        block = program.block(data, index)
        logs = jnp.swapaxes(program.log_likelihoods(params, block), 1, 2)[:, :, 1:-1]
        at_start = block.at_start[1:-1]

        def from_state(state: jax.Array) -> jax.Array:
            # Known to be in `state` before the chunk, or at its first time where it begins its sequence.
            law = (jnp.arange(n_states) == state).astype(logs.dtype)
            before = jnp.broadcast_to(safe_log(law)[:, None], (n_states, logs.shape[2]))
            filtered = filter_messages(before, at_start, law, transition, logs)
            return filtered.log_alpha[-1] + jnp.sum(filtered.log_normaliser, axis=0)

        found = jax.lax.map(from_state, jnp.arange(n_states))
        return jnp.moveaxis(found, 2, 0), at_start, block.at_start[2:]

    log_maps, at_start, at_end = jax.lax.map(maps, jnp.arange(program.lanes.n_blocks))
    flat = (log_maps.reshape(-1, n_states, n_states), at_start.reshape(-1), at_end.reshape(-1))
    log_initial = safe_log(params["initial"])

    def right(carry: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        log_map, starts, _ = inputs
        law = log_sum_exp(jnp.where(starts, log_initial, carry)[:, None] + log_map, 0)
        total = log_sum_exp(law, 0)
        # After an impossible observation, ignorance: the pass itself finds that the likelihood is zero.
        return jnp.where(jnp.isfinite(total), law - total, -jnp.log(float(n_states))), carry

    def left(carry: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        log_map, _, ends = inputs
        after = jnp.where(ends, 0.0, carry)
        message = log_sum_exp(log_map + after, 1)
        peak = jnp.max(message)
        return jnp.where(jnp.isfinite(peak), message - peak, 0.0), after

    _, before = jax.lax.scan(right, jnp.full(n_states, -np.log(n_states), program.dtype), flat)
    _, after = jax.lax.scan(left, jnp.zeros(n_states, program.dtype), flat, reverse=True)
    shape = (program.lanes.n_blocks, program.lanes.lanes, n_states)
    return Edges(*(jnp.swapaxes(part.reshape(shape), 1, 2) for part in (before, after)))


# Proofs -----------------------------------------------------------------------------------------------------------


def _moved(log_laws: jax.Array, transition: jax.Array) -> jax.Array:
    """Each law `(K, W)` one step on, largest entry 0: what is too small to matter is gone after the step."""
    moved = log_sum_exp(log_laws[:, None, :] + safe_log(transition)[:, :, None], 0)
    return moved - jnp.max(moved, axis=0)


def _projective_gap(one: jax.Array, other: jax.Array) -> jax.Array:
    """Largest difference of log odds, `(W,)`, less what rounding explains; infinite where only one is impossible."""
    impossible = jnp.isneginf(one) & jnp.isneginf(other)
    gap = jnp.abs(one - other) - _rounding(one.dtype) * jnp.abs(one)
    return _or_infinite(jnp.max(jnp.where(impossible, 0.0, gap), axis=0))


def _law_gap(one: jax.Array, other: jax.Array) -> jax.Array:
    """Total variation between laws given as log weights, `(W,)`, less what rounding explains."""
    distance = 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(one, axis=0) - jax.nn.softmax(other, axis=0)), axis=0)
    size = jnp.max(jnp.where(jnp.isneginf(one), 0.0, jnp.abs(one)), axis=0)
    return _or_infinite(distance - _rounding(one.dtype) * size)


def _rounding(dtype: Any) -> float:
    return 64 * float(jnp.finfo(dtype).eps)


def _or_infinite(gap: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(gap), jnp.inf, gap)
