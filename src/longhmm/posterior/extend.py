"""More draws of the same run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.errors import ModelError
from longhmm.posterior.origin import go, origin_of, wanted_size
from longhmm.run.limit import Limit
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
    """See `Posterior.extend`."""
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 1:
        raise ModelError(f"draws must be a whole number of at least 1, got {draws!r}.")
    origin = posterior.origin or origin_of(posterior, data, sampler)
    total = posterior.n_draws + int(draws)
    wanted = wanted_size(origin.request.automatic, origin.request.chains, total)
    request = replace(origin.request, draws=total, wanted_size=wanted, time_limit=time_limit, mark=None)
    chains, onward = go(replace(origin, request=request), progress, Limit(time_limit))
    posterior.__dict__.update(type(posterior).from_chains(request.model, chains, request.sequences).__dict__)
    posterior.origin = onward
    return posterior
