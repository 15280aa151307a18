"""Draws of a run against those of the same run with half the step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.posterior.diagnostics.bias import Compared, entries
from longhmm.posterior.diagnostics.convergence import effective_sizes, sd_errors
from longhmm.posterior.origin import exact_sampler, origin_of
from longhmm.progress import Bar
from longhmm.run.half_step import rerun_halved
from longhmm.run.session import find_stored, find_tuning

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def compare_halved(posterior: Posterior, sequences: Sequences) -> Compared | None:
    """Run for a short while with half the step and compare; None for samplers without a step."""
    origin = posterior.origin or origin_of(posterior, sequences, None)
    stored = origin.stored or find_stored(origin.request)
    if stored is None:
        return None
    request, bar = origin.request, Bar(False)
    if request.automatic:
        found = find_tuning(request, bar, stored)
        if found.exact:
            request = replace(request, sampler=exact_sampler(found)[0])
    chains = rerun_halved(request, stored, posterior.mean_params(), bar)
    if chains is None:
        return None
    other = type(posterior).from_chains(posterior.model, chains, sequences)
    return compared(entries(posterior).values, entries(other).values)


def compared(draws: np.ndarray, halved: np.ndarray) -> Compared:
    """Means and standard deviations of two sets of draws `(chain, draw, Q)`."""
    means = [each.mean(axis=(0, 1)) for each in (draws, halved)]
    sds = [each.std(axis=(0, 1)) for each in (draws, halved)]
    sizes = [effective_sizes(each) for each in (draws, halved)]
    errors = [sd_errors(each) for each in (draws, halved)]
    ratio = sds[0] / sds[1]
    return Compared(
        (means[0] - means[1]) / sds[1],
        np.sqrt(1.0 / sizes[0] + 1.0 / sizes[1]),
        ratio,
        ratio * np.hypot(*errors),
        np.inf,
    )
