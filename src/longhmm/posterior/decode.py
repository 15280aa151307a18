"""The most probable path of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.kernels.path_pass import best_path
from longhmm.run.cluster_passes import on_cluster

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def decode(posterior: Posterior, data: Any, *, draws: int | None = None, client: Any = None) -> np.ndarray:
    """The most probable path of states (Viterbi): `(T,)` at the posterior mean, or `(draws, T)`, one per draw.

    Many sequences are laid end to end, in order. How much the paths of several draws differ shows what the
    uncertainty of the parameters does to the decoding; it does not include the uncertainty of the path itself.
    With a `client` of a Dask cluster, its workers pass over the data.
    """
    sequences = on_cluster(data, client)
    if draws is None:
        return best_path(posterior.model, posterior.mean_params(), sequences)
    return np.stack([best_path(posterior.model, params, sequences) for params in posterior.iterate(draws)])
