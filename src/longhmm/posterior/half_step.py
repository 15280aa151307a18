"""Draws of a run against those of the same run with half the step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.posterior.diagnostics.bias import Compared, entries
from longhmm.posterior.diagnostics.convergence import effective_sizes, sd_errors
from longhmm.posterior.extend import run_of
from longhmm.run.run import Run, carry_out

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

DRAWS = 500  # of every chain


def compare_halved(posterior: Posterior, sequences: Sequences) -> Compared | None:
    """Run for a short while with half the step and compare; None for samplers without a step."""
    run = posterior.run or run_of(posterior, sequences, None)
    run.find()
    halved = None if run.tuned is None else run.sampler.halved()
    if halved is None:
        return None
    short = replace(
        run.request, sampler=halved, draws=min(run.request.draws, DRAWS), thin=2 * run.thin, seed=run.request.seed + 1,
        init=posterior.mean_params(), checkpoint=None, automatic=False,
    )  # fmt: skip
    chains = carry_out(Run(short, tuned=halved))  # which keeps its tuning but for the step
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
