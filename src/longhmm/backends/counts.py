"""Counts whose log probabilities are dear: each count is evaluated once, and rows look it up."""

from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.backends import native
from longhmm.data.layout import ladder
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.model.lowering import TABLE, Lowering, Params

ROWS_AT_ONCE = 1 << 18
MOST_COUNTS = 4096  # of which the kernel keeps sums for every state

_largest: WeakKeyDictionary[Sequences, int] = WeakKeyDictionary()


class CountLowering(Lowering):
    """A log probability for each of the counts 0, 1, ..., `size - 1`: natural parameters, and sums, of any emission of
    counts."""

    kind, rows_are_values, sufficient = TABLE, True, False

    def __init__(self, emission: Any, size: int) -> None:
        super().__init__(emission, 1, size, size)

    def natural(self, params: Params) -> jax.Array:
        counts = jnp.arange(self.pack, dtype=jnp.result_type(float))[:, None]
        logs: jax.Array = self.emission.log_likelihoods(params, Rows(counts, jnp.ones(counts.shape, bool)))
        return logs.T


def lowering_with(emission: Any, size: int) -> Lowering:
    """The emission's own lowering, or that of so many counts."""
    own: Lowering | None = emission.lowering
    return CountLowering(emission, size) if own is None else own


def of_counts(model: HMM, sequences: Sequences) -> CountLowering | None:
    """For data that are many counts, none of them large, and nothing else, where the C++ kernel runs; they are looked
    at once."""
    emission = model.emission
    counts = emission.support is constraints.nonnegative_integer and emission.dim == 1 and emission.lowering is None
    alone = not (emission.couples or emission.lags or model.transitions.varies or list(sequences.parts) != ["values"])
    here = sequences.executor.here and native.supports(TABLE, model.n_states, False, np.dtype(float))
    if not (counts and alone and here):
        return None
    if sequences not in _largest:
        blocks = sequences.blocks(ROWS_AT_ONCE)
        largest = max(rows.values.max(where=rows.observed, initial=0) for _, rows in blocks)
        _largest[sequences] = int(min(largest, MOST_COUNTS))
    size = ladder(_largest[sequences] + 1)
    return CountLowering(emission, size) if size <= min(MOST_COUNTS, sequences.length // 8) else None
