"""One look at all the data: the most probable path, and the probabilities of states, kept small."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.kernels.full_pass import collect_weights, posterior_pass
from longhmm.posterior.decode import decode
from longhmm.posterior.probabilities import state_probabilities

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

AVERAGED_UP_TO = 100_000  # observations; in longer data parameters are known so well that their mean will do
DRAWS = 20


class Scan(NamedTuple):
    """What every observation is taken for.

    Attributes:
        path: `(T,)` most probable path at the posterior mean, in the smallest integers that hold it.
        shares: `(T, K)` uint8, `P(x_t = k | y)` in units of 1/255.
    """

    path: np.ndarray
    shares: np.ndarray

    @property
    def occupancy(self) -> np.ndarray:
        """`(K,)` share of the data that each state accounts for."""
        total = np.zeros(self.shares.shape[1])
        for start in range(0, len(self.shares), 1 << 20):
            total += self.shares[start : start + (1 << 20)].sum(axis=0, dtype=np.float64)
        return total / total.sum()


def scan(posterior: Posterior, sequences: Sequences) -> Scan:
    """Decode the data, and find the probabilities of states, averaged over draws where there are few data."""
    kind = np.min_scalar_type(posterior.model.n_states - 1)
    path = decode(posterior, sequences).astype(kind)
    if sequences.length <= AVERAGED_UP_TO:
        return Scan(path, _bytes(state_probabilities(posterior, sequences, draws=DRAWS)))
    shares = np.empty((sequences.length, posterior.model.n_states), np.uint8)
    for result in posterior_pass(posterior.model, posterior.mean_params(), sequences, collect_weights):
        shares[result.start : result.stop] = _bytes(result.collected[result.own])
    return Scan(path, shares)


def _bytes(probabilities: np.ndarray) -> np.ndarray:
    return np.round(255 * np.clip(np.asarray(probabilities), 0, 1)).astype(np.uint8)
