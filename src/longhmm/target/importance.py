"""How much each stretch of the data matters: the proposal for drawing cells, from one look at all of them.

Under control variates a cell adds noise in proportion to its share of what is known about each parameter. About the
emission of a state that is its share of all times spent there; about a transition, its share of all such moves. So,
with expected visits `n_k` and moves `n_ij` of all data, and the prior's concentration `a_ij`, a cell matters by (F28)

    sum over k of  n_c,k / (n_k + 1)    plus    sum over i != j of  n_c,ij / (n_ij + a_ij)

where each of the two is scaled to sum to one over all cells. Each state, and each kind of move, gets the same part of
the windows, however rare it is. A cell whose share is misjudged is still drawn, and weighted by the probability with
which it is: a poor proposal costs noise, never bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import Statistics
from longhmm.data.executor import ahead
from longhmm.data.layout import Cells
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.target.full_data import full_statistics
from longhmm.target.minibatch import Minibatch, host_rows

ROWS = 1 << 18  # looked at together
BITS = 8  # of the rates that are kept

WindowStatistics = Callable[[HMM, Mapping[str, jax.Array], Minibatch], Statistics]


def importance_of_groups(
    model: HMM,
    params: Mapping[str, np.ndarray],
    sequences: Sequences,
    blocks: Cells,
    buffer: int,
    statistics: WindowStatistics,
) -> np.ndarray:
    """`(B,)`, how much each block of the data matters at `params`: (F28), summed over its cells.

    Blocks are read on the host wherever the data lie, so that the same data give the same table.

    Args:
        statistics: of every window by itself, for cores as long as a block.
    """
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    rates = _rates(model, full_statistics(model, params, sequences))
    batch = min(max(1, ROWS // blocks.width(buffer)), blocks.n_cells)
    weights = np.ones(batch, np.float32)

    def read(index: int) -> Minibatch:
        numbers = np.arange(index * batch, (index + 1) * batch)
        padded = np.minimum(numbers, blocks.n_cells - 1)  # one shape, and so one program
        return Minibatch(*host_rows(sequences, blocks, padded, buffer, model.lags), weights)

    found = [_shares(model, statistics, narrow, *rates, each) for each in ahead(read, -(-blocks.n_cells // batch))]
    shares = np.concatenate([np.asarray(each, np.float64) for each in found], axis=1)[:, : blocks.n_cells]
    shares = np.where(np.isfinite(shares), shares, 0.0)  # a block that no parameters can explain
    sums = shares.sum(axis=1, keepdims=True)
    importance = np.divide(shares, sums, out=np.zeros_like(shares), where=sums > 0).sum(axis=0)
    # Where there is but one state there are no moves; where nothing can be explained, no cell is known to matter more.
    return importance if importance.any() else np.ones(blocks.n_cells)


def _rates(model: HMM, totals: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """What one visit to each state, and one move of each kind, adds to the importance of a cell."""
    visits = totals.first + totals.transitions.sum(axis=0)
    moves = model.transitions.allowed & ~np.eye(model.n_states, dtype=bool)
    prior = 1.0 if model.transitions.varies else model.transitions.concentration
    per_move = moves / (totals.transitions + np.where(moves, prior, 1.0))
    return _few_bits(1.0 / (visits + 1.0)), _few_bits(per_move)


def _few_bits(values: np.ndarray) -> np.ndarray:
    """Rounded so that totals summed in another order give the same arcs, and so the same windows."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2**BITS) / 2**BITS, exponent).astype(np.float32)


@partial(jax.jit, static_argnames=("statistics",))
def _shares(
    model: HMM,
    statistics: WindowStatistics,
    params: Mapping[str, jax.Array],
    per_visit: jax.Array,
    per_move: jax.Array,
    minibatch: Minibatch,
) -> jax.Array:
    """`(2, W)`, each window's shares of the visits of every state and of every kind of move, summed."""
    found = statistics(model, params, minibatch)
    visits = found.first + jnp.sum(found.transitions, axis=1)
    return jnp.stack([jnp.sum(visits * per_visit, axis=1), jnp.sum(found.transitions * per_move, axis=(1, 2))])
