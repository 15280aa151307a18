"""Which state each observation comes from: the most probable path, and probabilities averaged over draws."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.backends.block import Own
from longhmm.backends.paths import best_path
from longhmm.backends.stream import stream, totals
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError
from longhmm.posterior.draws import Draws
from longhmm.run.cluster_passes import on_cluster


def decode(posterior: Draws, data: Any, draws: int | None, client: Any) -> np.ndarray:
    """See `Posterior.decode`."""
    sequences = on_cluster(data, client)
    if draws is None:
        return best_path(posterior.model, posterior.mean_params(), sequences)
    return posterior.over_draws(lambda params: best_path(posterior.model, params, sequences), draws)


def state_probabilities(posterior: Draws, data: Any, draws: int, causal: bool, out: Any, client: Any) -> np.ndarray:
    """See `Posterior.state_probabilities`."""
    sequences = on_cluster(data, client)
    shape = (sequences.length, posterior.model.n_states)
    total = np.empty(shape, np.float32) if out is None else array_for(out, shape)
    total[...] = 0
    share = partial(_share, len(posterior.thinned(draws)))
    for params in posterior.iterate(draws):
        for start, part in stream(posterior.model, params, sequences, reduce=share, forward_only=causal):
            total[start : start + len(part)] += part
    return total


def _share(draws: int, own: Own) -> tuple[int, np.ndarray]:
    assert own.probabilities is not None
    return own.start, np.asarray(own.probabilities / draws, np.float32)


def array_for(out: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The float32 array of this shape that a result goes into: `out` itself, or an .npy file that is made."""
    if isinstance(out, str | Path):
        if Path(out).suffix != ".npy":
            raise DataError(f"out must be an array or the name of an .npy file, got {str(out)!r}.")
        return np.lib.format.open_memmap(out, mode="w+", dtype=np.float32, shape=shape)
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != np.float32:
        raise DataError(f"out must be a float32 array of shape {shape} or the name of an .npy file, got {type(out)}.")
    return out


def occupancy(posterior: Draws, sequences: Sequences, draws: int) -> np.ndarray:
    """`(draws, K)`, the share of the data that each state accounts for, at each draw."""

    def shares(params: dict[str, np.ndarray]) -> np.ndarray:
        found = totals(posterior.model, params, sequences)
        return np.asarray(found.first + found.transitions.sum(axis=0)) / sequences.length

    return posterior.over_draws(shares, draws)
