"""The most probable path of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.backends.paths import best_path
from longhmm.run.cluster_passes import on_cluster

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def decode(posterior: Posterior, data: Any, *, draws: int | None = None, client: Any = None) -> np.ndarray:
    """See `Posterior.decode`."""
    sequences = on_cluster(data, client)
    if draws is None:
        return best_path(posterior.model, posterior.mean_params(), sequences)
    return np.stack([best_path(posterior.model, params, sequences) for params in posterior.iterate(draws)])
