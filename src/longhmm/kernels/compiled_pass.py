"""Exact passes by the C++ kernel inside compiled programs: all data as long windows side by side, edges proved.

What comes into a chunk from its neighbours is found by starting `reach` rows before it and ending as many behind it,
and proved afterwards, as in `fused_pass`; here the proof is part of the program, and a longer reach follows a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells
from longhmm.kernels import native
from longhmm.kernels.compiled_call import Found, Laws, Placed, native_windows
from longhmm.kernels.edges import guess
from longhmm.kernels.forms import Form, packs, slopes
from longhmm.kernels.fused_pass import REACHES, chunk_length
from longhmm.kernels.proofs import TOLERANCE, filtered_gap, smoothed_gap
from longhmm.kernels.rows import Reader
from longhmm.kernels.statistics import Statistics, free_emission
from longhmm.messages.scaling import safe_log
from longhmm.model.hmm import HMM

Params = Mapping[str, jax.Array]
FIRST_LEVEL, LAST_LEVEL = -len(REACHES), -1  # levels of `resident` at which this pass tries its reaches
MOST_BYTES = 1 << 32  # rows up to this size are kept
MOST_GIVEN = 1 << 24  # log likelihoods, rows times states, that a program may hold at once


class Chunks(NamedTuple):
    """All data, cut into chunks. Rows are numbers of the emission's form, or observations with what is known of them.

    Attributes:
        rows: `(T, width)` numbers; None where log likelihoods are computed from `values`.
        values, observed, states: `(T, D)`, `(T, D)` and `(T,)`; None where there are numbers.
        begin, core: `(W,)`, first row and number of rows of every chunk.
        left, right: `(W,)`, rows of the same sequence on either side, up to one more than the longest reach.
        base: sum of `log h(y)`.
    """

    rows: Any
    values: Any
    observed: Any
    states: Any
    begin: Any
    core: Any
    left: Any
    right: Any
    base: Any


def lay_chunks(model: HMM, sequences: Sequences) -> tuple[Form, Chunks] | None:
    """The data as chunks with the form of their rows, under `jax.enable_x64(True)`; None where it cannot be."""
    if not native.usable():
        return None
    reader = Reader(model, sequences, {})
    given = reader.form.kind == native.GIVEN
    width = sequences.dim if given else reader.form.width
    if sequences.length * width * 8 > MOST_BYTES or (given and sequences.length * model.n_states > MOST_GIVEN):
        return None
    cells = Cells(sequences.offsets, chunk_length(sequences))
    index = cells.locate(np.arange(cells.n_cells), REACHES[-1] + 1)
    rows = values = observed = states = None
    if given:
        block = sequences.read(0, sequences.length)
        values, observed = jnp.asarray(block.values), jnp.asarray(block.observed)
        states = None if block.states is None else jnp.asarray(block.states)
    else:
        rows = jnp.asarray(reader.read(0, sequences.length))
    begin, core = index.start + index.core_start, index.core_stop - index.core_start
    spans = (begin, core, index.core_start, index.length - index.core_stop)
    begin, core, left, right = (jnp.asarray(each, jnp.int32) for each in spans)
    base = jnp.asarray(reader.log_base_measure(), jnp.float64)
    return reader.form, Chunks(rows, values, observed, states, begin, core, left, right, base)


def chunk_statistics(
    model: HMM, form: Form, chunks: Chunks, params: Params, level: jax.Array
) -> tuple[jax.Array, jax.Array, Statistics]:
    """Statistics of all data, the level they were found at, and the disagreement of edges that is left there.

    The first reach is the one of `level`. A disagreement above `TOLERANCE` means that the longest was not enough.
    """
    rows, pull = chunks.rows, None
    given = form.kind == native.GIVEN
    if given:
        free = free_emission(model, params)
        rows, pull = jax.vjp(lambda values: given_logs(model, chunks, {**params, **values}), free)
    state_packs = jnp.zeros((model.n_states, 1)) if given else packs(model, params)
    laws = Laws(params["transition"], params["initial"], guess(params["transition"]), state_packs)

    def attempt(level: jax.Array) -> Found:
        reach = jnp.asarray(REACHES, jnp.int32)[level - FIRST_LEVEL]
        left, right = jnp.minimum(chunks.left, reach), jnp.minimum(chunks.right, reach)
        at_start = (chunks.left <= reach).astype(jnp.int32)
        return native_windows(form, Placed(rows, chunks.begin, left, chunks.core, right, at_start), laws, edges=True)

    def again(carry: tuple[jax.Array, jax.Array, Found]) -> jax.Array:
        level, gap, found = carry
        return (level < LAST_LEVEL) & ~(gap <= TOLERANCE) & jnp.isfinite(found.log_likelihood)

    def run(carry: tuple[jax.Array, jax.Array, Found]) -> tuple[jax.Array, jax.Array, Found]:
        level = carry[0] + 1
        found = attempt(level)
        return level, _gap(params["transition"], found.edges, chunks.left == 0), found

    nothing = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(attempt, jnp.asarray(FIRST_LEVEL))
    )
    level, gap, found = jax.lax.while_loop(again, run, (level - 1, jnp.asarray(jnp.inf), nothing))
    emission = pull(found.gamma)[0] if pull is not None else slopes(model, params, found.sums)
    # The kernel takes NaN for a missing row: where the density is no number, neither is the likelihood.
    undefined = jnp.any(jnp.isnan(rows)) if given else False
    total = jnp.where(undefined, jnp.nan, found.log_likelihood + chunks.base)
    # Without a likelihood there is nothing to prove.
    return level, jnp.where(jnp.isfinite(total), gap, 0.0), Statistics(found.first, found.transitions, emission, total)


def given_logs(model: HMM, chunks: Chunks, params: Params) -> jax.Array:
    """Log likelihoods `(T, K)`, where the kernel cannot compute them."""
    return model.log_likelihoods(params, chunks.values, chunks.observed, chunks.states)


def _gap(transition: jax.Array, edges: jax.Array, starts: jax.Array) -> jax.Array:
    """The largest disagreement of messages where two chunks of one sequence meet; see `proofs`."""
    before, leaving, after, entering = (safe_log(each).T for each in edges)
    filtered = filtered_gap(transition, leaving[:, :-1], before[:, 1:])
    smoothed = smoothed_gap(leaving[:, :-1], after[:, :-1], entering[:, 1:])
    return jnp.max(jnp.where(starts[1:], 0.0, jnp.maximum(filtered, smoothed)), initial=0.0)
