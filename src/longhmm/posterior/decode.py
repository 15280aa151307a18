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
from longhmm.run.cluster import on_cluster


class Decoding(Draws):
    """Draws that say which state each observation comes from."""

    def decode(self, data: Any, *, draws: int | None = None, client: Any = None) -> np.ndarray:
        """The most probable path of states (Viterbi): `(T,)` at the posterior mean, or `(draws, T)`, one per draw.

        Many sequences are laid end to end, in order. How much the paths of several draws differ shows what the
        uncertainty of the parameters does to the decoding; it does not include the uncertainty of the path itself.
        With a `client` of a Dask cluster, its workers pass over the data.
        """
        sequences = on_cluster(data, client)
        if draws is None:
            return best_path(self.model, self.mean_params(), sequences)
        return self.over_draws(lambda params: best_path(self.model, params, sequences), draws)

    def state_probabilities(
        self, data: Any, *, draws: int = 20, causal: bool = False, out: Any = None, client: Any = None
    ) -> np.ndarray:
        """`P(x_t = k | all y)`, `(T, K)` float32, averaged over `draws` evenly spaced draws.

        Args:
            data: anything that `open_data` takes; many sequences are laid end to end.
            causal: True conditions on the observations up to t only.
            out: where to put the result if it is too long for memory: the name of an .npy file to make, or an array.
            client: a `dask.distributed.Client`, whose workers then pass over the data.
        """
        sequences = on_cluster(data, client)
        shape = (sequences.length, self.model.n_states)
        total = np.empty(shape, np.float32) if out is None else array_for(out, shape)
        total[...] = 0
        share = partial(_share, len(self.thinned(draws)))
        for params in self.iterate(draws):
            for start, part in stream(self.model, params, sequences, reduce=share, forward_only=causal):
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
