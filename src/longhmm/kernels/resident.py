"""The exact log posterior as one compiled function, for samplers that call it thousands of times.

One evaluation is one pass over all data inside one program. Its derivative is Fisher's identity (F8): expected
statistics at the same point, so nothing is differentiated through the recursions.

Where the C++ kernel can be called it makes the pass (see `compiled_pass`); otherwise, and where chunks do not forget
what came before them, JAX does. How edges of chunks are found and proved then is in `lane_edges`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.kernels.compiled_pass import FIRST_LEVEL, Chunks, chunk_statistics, lay_chunks
from longhmm.kernels.devices import everywhere
from longhmm.kernels.edges import Edges
from longhmm.kernels.forms import slopes
from longhmm.kernels.gpu_pass import Block as FusedBlock
from longhmm.kernels.gpu_pass import block_sums, resident_block
from longhmm.kernels.lane_edges import CARRIED, SHORT, WHOLE_CHUNK, carried_edges, guessed_edges
from longhmm.kernels.lanes import LaneBlock, Lanes, Params, Program, check_rows
from longhmm.kernels.proofs import TOLERANCE, filtered_gap, smoothed_gap
from longhmm.kernels.statistics import Statistics, free_emission
from longhmm.messages.forward_backward import forward_backward
from longhmm.model.hmm import HMM

# Messages in single precision never agree better than to rounding.
TOLERANCES = {np.dtype(np.float64): TOLERANCE, np.dtype(np.float32): 1e-5}


class Inputs(NamedTuple):
    """The arrays behind a posterior: blocks of data (None: read on the host), the level to begin with, the law of first
    states where it is not the model's own, the first row of every lane, `(n_blocks, lanes)`, and the same data for the
    fused kernels: on a GPU, with the sum of `log h(y)`, or on the CPU."""

    data: LaneBlock | None
    level: Any
    initial: Any
    lane_rows: Any
    fused: tuple[FusedBlock, Any] | None = None
    chunks: Chunks | None = None


class Joint(NamedTuple):
    """Messages at the right edge of a block's last chunk, `(K,)` each, with which the next block proves its own."""

    leaving: jax.Array
    after: jax.Array


@jax.tree_util.register_pytree_node_class
class ResidentPosterior:
    """Log posterior density of unconstrained coordinates, up to the evidence; `posterior(u)` may be differentiated.

    It may be called inside compiled code, under `jax.enable_x64(True)`, and may be handed to it as an argument: it is
    a tree of arrays, the data among them.

    Args:
        model: the hidden Markov model; default priors are scaled to the data.
        sequences: the data; kept by the device where they fit, otherwise read in every pass.
        dtype: precision of the recursions. Sums are always float64.
        initial: `(K,)`, law of the state of a sequence's first observation, if it is not the model's own.
    """

    def __init__(self, model: HMM, sequences: Sequences, dtype: Any = np.float64, initial: Any = None) -> None:
        resolved = model.resolve(sequences)
        partial_rows = check_rows(resolved, sequences)
        lanes = Lanes(sequences, resolved.n_states)
        plan, fused = None, None
        found = resident_block(resolved, sequences) if np.dtype(dtype) == np.float32 and not partial_rows else None
        with jax.enable_x64(True):
            if found is not None:
                plan, block, base = found
                fused = (block, jnp.asarray(base, jnp.float64))
            # Beside rows that are spread over devices, so that they are not sent along with every call.
            data = lanes.stack() if lanes.fits else None
            data = data if fused is None else everywhere(data)
            form, chunks = lay_chunks(resolved, sequences) or (None, None)
            first = None if initial is None else jnp.asarray(initial, jnp.float64)
            level = jnp.asarray(SHORT if chunks is None else FIRST_LEVEL, jnp.int32)
            self.inputs = Inputs(data, level, first, jnp.asarray(lanes.first_rows()), fused, chunks)
        self.program = Program(resolved, lanes.layout(), partial_rows, np.dtype(dtype), plan, form)

    @property
    def model(self) -> HMM:
        """The model, with default priors scaled to the data."""
        return self.program.model

    def __call__(self, coordinates: Params) -> jax.Array:
        with jax.enable_x64(True):
            return _log_posterior(self.program, self.inputs, _wide(coordinates))[0]

    def value_and_gradient(self, coordinates: Params) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The log posterior and its gradient by name, from one pass."""
        with jax.enable_x64(True):
            value, gradient, _ = _evaluate(self.program, self.inputs, _wide(coordinates))
            return value, gradient

    def settle(self, coordinates: Params) -> int:
        """Find out how edges are to be found near these coordinates; see `at_level`."""
        with jax.enable_x64(True):
            return int(_evaluate(self.program, self.at_level(FIRST_LEVEL).inputs, _wide(coordinates))[2])

    def at_level(self, level: Any) -> ResidentPosterior:
        """The same posterior whose passes begin at the level that `settle` found, so that they try nothing in vain."""
        inputs = self.inputs._replace(level=jnp.asarray(level, jnp.int32))
        return ResidentPosterior.tree_unflatten(self.program, (inputs,))

    def tree_flatten(self) -> tuple[tuple[Inputs], Program]:
        """For JAX: arrays, and what is constant."""
        return (self.inputs,), self.program

    @classmethod
    def tree_unflatten(cls, program: Program, children: tuple[Inputs]) -> ResidentPosterior:
        """Inverse of `tree_flatten`."""
        posterior = object.__new__(cls)
        posterior.program, (posterior.inputs,) = program, children
        return posterior


def _wide(coordinates: Params) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value, jnp.float64) for name, value in coordinates.items()}


@partial(jax.jit, static_argnums=0)
def _log_posterior(program: Program, inputs: Inputs, coordinates: Params) -> tuple[jax.Array, jax.Array]:
    """The log posterior, and the level at which its edges were proved."""
    params = program.model.constrain(coordinates)
    if inputs.initial is not None:
        params = {**params, "initial": inputs.initial}
    value, proved = _log_likelihood(program, inputs, params)
    return value + program.model.log_prior_unconstrained(coordinates), proved


@partial(jax.jit, static_argnums=0)
def _evaluate(
    program: Program, inputs: Inputs, coordinates: Params
) -> tuple[jax.Array, dict[str, jax.Array], jax.Array]:
    both = jax.value_and_grad(_log_posterior, argnums=2, has_aux=True)
    (value, proved), gradient = both(program, inputs, dict(coordinates))
    return value, gradient, proved


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _log_likelihood(program: Program, inputs: Inputs, params: Params) -> tuple[jax.Array, jax.Array]:
    statistics, proved = _full_pass(program, inputs, params)
    return statistics.log_likelihood, proved


def _log_likelihood_forward(
    program: Program, inputs: Inputs, params: Params
) -> tuple[tuple[jax.Array, jax.Array], dict[str, jax.Array]]:
    statistics, proved = _full_pass(program, inputs, params)
    slopes = {name: jnp.zeros_like(value) for name, value in params.items()}
    # d/dA of n_ij log A_ij is n_ij / A_ij, and n_ij is 0 where A_ij is.
    for name, counts in (("transition", statistics.transitions), ("initial", statistics.first)):
        slopes[name] = counts / jnp.where(params[name] > 0, params[name], 1.0)
    return (statistics.log_likelihood, proved), {**slopes, **statistics.emission}


def _log_likelihood_backward(
    program: Program, slopes: dict[str, jax.Array], outer: tuple[jax.Array, Any]
) -> tuple[Any, ...]:
    return None, jax.tree.map(lambda slope: outer[0] * slope, slopes)


_log_likelihood.defvjp(_log_likelihood_forward, _log_likelihood_backward)


# Passes -----------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def _full_pass(program: Program, inputs: Inputs, params: Params) -> tuple[Statistics, jax.Array]:
    """Statistics of all data, and the level at which the edges were proved."""
    narrow = {name: jnp.asarray(value).astype(program.dtype) for name, value in params.items()}
    data, first = inputs.data, jnp.where(program.lanes.reach > 0, jnp.maximum(inputs.level, SHORT), SHORT)
    one_piece = program.lanes.reach == program.lanes.chunk_length

    def again(carry: tuple[jax.Array, jax.Array, Statistics]) -> jax.Array:
        level, gap, statistics = carry
        # Without a log likelihood there is nothing to prove.
        return (level < CARRIED) & ~(gap <= TOLERANCES[program.dtype]) & ~jnp.isnan(statistics.log_likelihood)

    def run(carry: tuple[jax.Array, jax.Array, Statistics]) -> tuple[jax.Array, jax.Array, Statistics]:
        level = carry[0] + 1
        level = jnp.where(one_piece & (level == WHOLE_CHUNK), CARRIED, level)
        return level, *_pass(program, data, level, narrow)

    # The loop begins with an attempt that never counts, so that the pass is compiled once; unless a fused kernel has
    # made one that does.
    begin = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(_pass, program, data, first, narrow)[1]
    )
    level, gap = first - 1, jnp.asarray(jnp.inf)
    if inputs.chunks is not None:
        assert program.form is not None
        level, gap, begin = chunk_statistics(program.model, program.form, inputs.chunks, params, inputs.level)
        # What its reaches cannot prove, shorter ones need not try; a level of the loop below means to begin there.
        level = jnp.where(gap <= TOLERANCE, level, jnp.where(inputs.level < SHORT, CARRIED, inputs.level) - 1)
    elif inputs.fused is not None:
        gap, begin = _fused_pass(program, *inputs.fused, params)
    proved, _, statistics = jax.lax.while_loop(again, run, (level, gap, begin))
    return statistics, proved if inputs.chunks is not None else jnp.maximum(proved, SHORT)


def _fused_pass(program: Program, block: FusedBlock, base: jax.Array, params: Params) -> tuple[jax.Array, Statistics]:
    """The same by the GPU kernel; the disagreement is infinite where it has to be done again."""
    assert program.plan is not None
    nothing_before = jnp.ones((2, program.model.n_states), jnp.float32)
    found = block_sums(program.model, program.plan, block, params, nothing_before)
    sound = ~found.lost & jnp.isfinite(found.log_likelihood)
    statistics = Statistics(
        found.first, found.transitions, slopes(program.model, params, found.sums), found.log_likelihood + base
    )
    clean = jax.tree.map(lambda part: jnp.where(sound, part, 0.0), statistics)
    return jnp.where(sound, found.gap, jnp.inf).astype(jnp.result_type(float)), clean


@partial(jax.jit, static_argnums=0)
def _pass(program: Program, data: LaneBlock | None, level: jax.Array, params: Params) -> tuple[jax.Array, Statistics]:
    """One pass: the largest disagreement between neighbouring chunks, and the statistics."""
    n_states, n_blocks = program.model.n_states, program.lanes.n_blocks
    shape = (n_blocks, n_states, program.lanes.lanes)
    given = Edges(jnp.zeros(shape, program.dtype), jnp.zeros(shape, program.dtype))
    if program.lanes.reach:
        given = jax.lax.cond(level == CARRIED, lambda: carried_edges(program, data, params), lambda: given)

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
        guess = partial(guessed_edges, program.lanes.reach, level, initial, transition, logs, block)
        edges = jax.lax.cond(level < CARRIED, guess, lambda: given)
    own = slice(1, -1)
    at_start, length = block.at_start[own], block.length[own]
    inside = jnp.arange(logs.shape[0])[:, None] < length
    smoothed = forward_backward(edges.before, edges.after, at_start, initial, transition, logs[:, :, own], inside)
    leaving = jnp.concatenate([joint.leaving[:, None], smoothed.log_leaving], axis=1)
    after = jnp.concatenate([joint.after[:, None], edges.after], axis=1)
    gaps = jnp.maximum(
        filtered_gap(transition, leaving[:, :-1], edges.before),
        smoothed_gap(leaving[:, :-1], after[:, :-1], smoothed.log_entering),
    )
    gap = jnp.max(jnp.where(at_start, 0.0, gaps))
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
