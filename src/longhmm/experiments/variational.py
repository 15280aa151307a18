"""Stochastic variational inference against exact Gibbs draws on a short piece of the reversed cycles.

The claim: a mean-field posterior leaves out the dependence between parameters, and so underestimates their
correlations (and, where states are hard to tell apart, their standard deviations).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from longhmm.data.sequences import open_data
from longhmm.experiments import models, scoring
from longhmm.experiments.chains import Params, natural
from longhmm.experiments.document import chains_of, describe, document, log
from longhmm.gradients.api import unconstrain
from longhmm.gradients.buffer_length import LyapunovBuffer
from longhmm.gradients.schemes import Windows
from longhmm.model.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.run.driver import Driver
from longhmm.samplers.gibbs import Gibbs
from longhmm.samplers.stochastic_variational import StochasticVariational, draw_from_posterior

WINDOWS = Windows(10, 20)
POSSIBLE = 0.05  # exact posterior mean of a transition whose correlations are looked at


def overlapping() -> models.Named:
    """Reversed cycles under twice the noise of RC-hard: states are uncertain even to those who know the dynamics."""
    model, params = models.rc_hard()
    return model, {**params, "covariance": 4.0 * params["covariance"]}


DATA = {"rc": models.rc, "rc-overlap": overlapping}


@dataclass(frozen=True)
class Size:
    """Observations, Gibbs sweeps kept and thrown away, variational steps, draws from the approximation."""

    length: int
    sweeps: int
    warmup: int
    steps: int
    draws: int
    data: tuple[str, ...]


SIZES = {
    "tiny": Size(1_000, 30, 10, 50, 100, ("rc-overlap",)),
    "small": Size(4_000, 1_500, 100, 1_000, 3_000, ("rc", "rc-overlap")),
    "paper": Size(20_000, 4_000, 200, 5_000, 4_000, ("rc", "rc-overlap")),
}


def run(name: str, scale: str, seed: int = 0) -> dict[str, Any]:
    """Both posteriors on both data sets: standard deviations and correlations side by side."""
    size = SIZES[scale]
    found = document(name, scale, seed, {**asdict(size), **describe(WINDOWS), "start": "truth"})
    pairs: dict[str, Any] = {}
    for data in size.data:
        truth = DATA[data]()[1]
        _, values = simulate(HMM(n_states=8, emission=Gaussian(dim=2)), truth, size.length, seed=seed)
        sequences = open_data(values)
        model = HMM(n_states=8, emission=Gaussian(dim=2)).resolve(sequences)
        lifted = (truth["transition"] + 1e-3) / (1 + 8e-3)
        start = {**truth, "transition": lifted}
        summaries: dict[str, dict[str, Any]] = {}
        possible = None
        for label, draw in (("gibbs", _gibbs), ("svi", _svi)):
            log(f"{name}: {label} on {data}")
            began = time.perf_counter()
            draws, touched = draw(model, sequences, start, size, seed)
            seconds = time.perf_counter() - began
            if possible is None:  # the exact posterior says which transitions both are compared in
                possible = np.flatnonzero(draws["transition"].mean(axis=0) > POSSIBLE)
            summaries[label] = _summary(draws, possible)
            means = {key: value.mean(axis=0, keepdims=True) for key, value in draws.items()}
            error = [scoring.transition_error(each, truth, "mean") for each in chains_of(means)]
            found.note(
                f"{label}-{data}",
                {
                    "transition_error": error,
                    "seconds": [seconds],
                    "observations_touched": [touched],
                    "rms_correlation": [np.sqrt(max(summaries[label]["squares"].mean(), 0.0))],
                },
            )
        ratio = summaries["svi"]["sd"] / summaries["gibbs"]["sd"]
        found.results[f"svi-{data}"]["median_sd_ratio"] = float(np.median(ratio))
        missing = summaries["gibbs"]["squares"] - summaries["svi"]["squares"]
        pairs[data] = {
            "sd_ratio": ratio,
            "missing_squared_correlation": scoring.mean_and_error(missing),
            "pairs": len(missing),
            "gibbs": summaries["gibbs"]["correlations"],
            "svi": summaries["svi"]["correlations"],
        }
    found.extra["pairs"] = pairs
    return found.finish()


def _gibbs(model: HMM, sequences: Any, start: Params, size: Size, seed: int) -> tuple[Params, float]:
    sampler = Gibbs()
    with jax.enable_x64(True):
        bound = sampler.estimator(None, None).bind(model, sequences, start)
    driver = Driver(sampler, model, bound, seed)
    run = driver.start([unconstrain(model, start)])
    driver.advance(run, size.warmup, 1, record=False)
    driver.advance(run, size.sweeps, 1)
    draws = natural(model, run.draws_tree(), lambda value: value[0])
    return draws, float(size.length * (size.sweeps + size.warmup))


def _svi(model: HMM, sequences: Any, start: Params, size: Size, seed: int) -> tuple[Params, float]:
    sampler = StochasticVariational()
    bound = sampler.estimator(WINDOWS, LyapunovBuffer()).bind(model, sequences, start)
    driver = Driver(sampler, model, bound, seed)
    run = driver.start([unconstrain(model, start)])
    driver.advance(run, 1, size.steps, record=False)
    state = jax.tree.map(jax.numpy.asarray, run.states[0])
    drawn = draw_from_posterior(model, jax.random.key(seed), state, size.draws)
    draws = natural(model, {key: np.asarray(value)[None] for key, value in drawn.items()}, lambda value: value[0])
    width = WINDOWS.core_length + 2 * bound.buffer.length
    return draws, float(size.steps * WINDOWS.count * width)


def _summary(draws: Params, possible: np.ndarray) -> dict[str, Any]:
    """Standard deviations and correlations of means, covariances and transitions, those numbered `possible`.

    Correlations of finitely many draws are never zero. Those of two halves of the draws, multiplied pair by pair, have
    the squared correlation as their mean: these products are the `squares`. Entries of one row of the transition matrix
    are left out, since both posteriors have them right.
    """
    count = len(draws["mean"])
    transition = draws["transition"].reshape(count, -1)
    upper = draws["covariance"][:, :, *np.triu_indices(draws["covariance"].shape[-1])]
    columns = np.concatenate(
        [draws["mean"].reshape(count, -1), upper.reshape(count, -1), transition[:, possible]], axis=1
    )
    row = np.concatenate([np.full(columns.shape[1] - len(possible), -1), possible // draws["transition"].shape[1]])
    first, second = np.triu_indices(len(row), 1)
    kept = (row[first] != row[second]) | (row[first] < 0)
    halves = [np.corrcoef(each.T)[first, second][kept] for each in np.array_split(columns, 2)]
    return {
        "sd": columns.std(axis=0),
        "correlations": np.corrcoef(columns.T)[first, second][kept],
        "squares": halves[0] * halves[1],
    }
