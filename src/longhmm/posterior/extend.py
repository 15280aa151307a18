"""More draws of the same run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.errors import ModelError
from longhmm.posterior.origin import go, origin_of, wanted_size
from longhmm.samplers.contract import Sampler

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def extend(
    posterior: Posterior,
    draws: int,
    data: Any = None,
    *,
    sampler: Sampler | None = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> Posterior:
    """Go on from where the run stopped; the posterior then holds old and new draws, and is returned.

    The chains are the same chains: with `thin` given, the draws are bit for bit those of one longer run. Where the
    distance between draws was chosen automatically it is kept, and doubled only if all draws together are too much
    alike, as one longer run would have done. What was diagnosed before no longer holds, and `verdict` is None again.

    Args:
        draws: how many more, of each chain.
        data: the data of the run, needed only if the posterior was loaded from disk; its run must have kept a
            checkpoint, which is brought up to date.
        sampler: needed only if the posterior was loaded and its sampler is your own.
        time_limit, progress: as in `sample`.
    """
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 1:
        raise ModelError(f"draws must be a whole number of at least 1, got {draws!r}.")
    origin = posterior.origin or origin_of(posterior, data, sampler)
    total = posterior.n_draws + int(draws)
    wanted = wanted_size(origin.request.automatic, origin.request.chains, total)
    request = replace(origin.request, draws=total, wanted_size=wanted, time_limit=time_limit, mark=None)
    chains, onward = go(replace(origin, request=request), progress)
    posterior.take(type(posterior).from_chains(request.model, chains, request.sequences))
    posterior.origin = onward
    return posterior
