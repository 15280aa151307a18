"""State probabilities, averaged over draws of the parameters."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.backends.block import Own
from longhmm.backends.stream import stream
from longhmm.errors import DataError
from longhmm.run.cluster_passes import on_cluster

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def state_probabilities(
    posterior: Posterior, data: Any, *, draws: int = 20, causal: bool = False, out: Any = None, client: Any = None
) -> np.ndarray:
    """See `Posterior.state_probabilities`."""
    sequences = on_cluster(data, client)
    shape = (sequences.length, posterior.model.n_states)
    total = _target(out, shape)
    total[...] = 0
    chosen = posterior.thinned(draws)
    share = partial(_share, len(chosen))
    for chain, draw in chosen:
        params = posterior.model.validate(posterior.params_at(chain, draw))
        for start, part in stream(posterior.model, params, sequences, reduce=share, forward_only=causal):
            total[start : start + len(part)] += part
    return total


def _share(draws: int, own: Own) -> tuple[int, np.ndarray]:
    assert own.probabilities is not None
    return own.start, np.asarray(own.probabilities / draws, np.float32)


def _target(out: Any, shape: tuple[int, int]) -> np.ndarray:
    if out is None:
        return np.empty(shape, np.float32)
    if isinstance(out, str | Path):
        if Path(out).suffix != ".npy":
            raise DataError(f"out must be an array or the name of an .npy file, got {str(out)!r}.")
        return np.lib.format.open_memmap(out, mode="w+", dtype=np.float32, shape=shape)
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != np.float32:
        raise DataError(f"out must be a float32 array of shape {shape} or the name of an .npy file, got {type(out)}.")
    return out
