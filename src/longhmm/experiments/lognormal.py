"""Log-normal data under a log-normal and under a Gaussian model: how fast, and how many states each of them selects.

The paper's claim: the log-normal model converges faster and selects the two states there are; the Gaussian one selects
four. The number of states is judged by held-out `ln p(y_test | y_train)` of 2,000 observations, at the posterior mode
(with this many observations averaging over the posterior changes it by far less than one unit).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpyro import distributions as dist

from longhmm.data.sequences import open_data
from longhmm.experiments import models, scoring
from longhmm.experiments.chains import Method, Params, Watched, late_average
from longhmm.experiments.document import Document, describe, document, log
from longhmm.experiments.pipeline import run_default
from longhmm.gradients.estimators import uniform_start
from longhmm.gradients.schemes import Windows
from longhmm.kernels.answers import log_likelihood
from longhmm.model.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.model.initialise import initial_params
from longhmm.model.positive import LogNormal
from longhmm.model.simulate import simulate
from longhmm.samplers.expectation_maximisation import fit_em
from longhmm.samplers.schedules import PolynomialDecay
from longhmm.samplers.sgrld import SGRLD

STATES = (1, 2, 3, 4)
TAIL = 2_000  # training observations read before the held-out ones, to find the state they begin in
WINDOWS = Windows(10, 20)
RATE, OFFSET, POWER = 0.05, 1000.0, 0.6


@dataclass(frozen=True)
class Size:
    """Observations to learn from and held out, SG-RLD steps, looks, chains, simulated data sets, states tried."""

    length: int
    held_out: int
    steps: int
    looks: int
    repetitions: int
    data_sets: int
    draws: int
    states: tuple[int, ...]


SIZES = {
    "tiny": Size(5_000, 500, 200, 4, 2, 1, 20, (1, 2)),
    "small": Size(50_000, 2_000, 3_000, 10, 3, 2, 50, STATES),
    "paper": Size(200_000, 2_000, 20_000, 20, 3, 5, 200, STATES),
}


def family(name: str, n_states: int) -> HMM:
    """The paper's priors for the log-normal model, the normal-inverse-Wishart defaults for the Gaussian one."""
    if name == "lognormal":
        return HMM(n_states=n_states, emission=LogNormal(loc=dist.Normal(0.0, 1.0), scale=dist.HalfNormal(1.0)))
    return HMM(n_states=n_states, emission=Gaussian())


LOCATION = {"lognormal": "loc", "gaussian": "mean"}


def run(name: str, scale: str, seed: int = 0) -> dict[str, Any]:
    """The whole experiment: settings, results, curves and the table of held-out probabilities."""
    size = SIZES[scale]
    simulated, truth = models.lognormal()
    found = document(name, scale, seed, _settings(size))
    sets = []
    for repetition in range(size.data_sets):
        _, values = simulate(simulated, truth, size.length + size.held_out, seed=seed + repetition)
        sets.append((values[: size.length], values[size.length :]))
    for which in LOCATION:
        _select(found, which, sets, size, seed)
        _converge(found, which, truth, sets[0], size, seed)
    log(f"{name}: default")
    train, test = sets[0]
    sequences = open_data(train)
    model = family("lognormal", 2).resolve(sequences)
    piped = run_default(model, sequences, chains=size.repetitions, draws=size.draws, seed=seed)
    found.settings["default"] = piped.settings
    found.add("default", piped.segments, piped.segments[-1].params, _Scored("lognormal", model, truth, train, test))
    return found.finish()


class _Scored:
    """Held-out log probability per observation, and the error of the transition matrix."""

    def __init__(self, which: str, model: HMM, truth: Params, train: np.ndarray, test: np.ndarray) -> None:
        self.model, self.train, self.test, self.location = model, train, test, LOCATION[which]
        # A Gaussian model is matched by the means that log-normal states have.
        self.truth = {**truth, "mean": np.exp(truth["loc"] + truth["scale"] ** 2 / 2)}

    def __call__(self, params: Params) -> dict[str, float]:
        return {
            "predictive_log_prob": held_out_log_prob(self.model, params, self.train, self.test),
            "transition_error": scoring.transition_error(params, self.truth, self.location),
        }


def held_out_log_prob(model: HMM, params: Params, train: np.ndarray, test: np.ndarray) -> float:
    """`ln p(y_test | y_train)` at given parameters, per held-out observation."""
    tail = train[-min(TAIL, len(train)) :]
    before = log_likelihood(model, params, tail)
    return (log_likelihood(model, params, np.concatenate([tail, test])) - before) / len(test)


def _select(found: Document, which: str, sets: list[tuple[np.ndarray, np.ndarray]], size: Size, seed: int) -> None:
    for n_states in size.states:
        log(f"{found.name}: {which}, {n_states} states")
        values = []
        for train, test in sets:
            model = family(which, n_states).resolve(train)
            fit = fit_em(model, train, restarts=4, seed=seed, progress=False)
            values.append(held_out_log_prob(model, fit.params, train, test))
        found.note(f"{which}-k{n_states}", {"predictive_log_prob": values})


def _converge(
    found: Document, which: str, truth: Params, sets: tuple[np.ndarray, np.ndarray], size: Size, seed: int
) -> None:
    train, test = sets
    sequences = open_data(train)
    model = family(which, 2).resolve(sequences)
    # The first start cuts at quantiles; k-means of numbers this skewed ends in other modes, which is not the question.
    start = initial_params(model, sequences, restarts=1, seed=seed)[0]
    flat = np.full((2, 2), 0.5)
    starts = [
        {**{key: value for key, value in start.items() if key != "initial"}, "transition": flat}
    ] * size.repetitions
    # Relative steps: the share of the way to equilibrium that one step goes, so that both models move alike.
    sampler = SGRLD(PolynomialDecay(RATE, OFFSET, POWER))
    label = "buffered" if which == "lognormal" else "gaussian-buffered"
    log(f"{found.name}: {label}")
    watched = Watched(model, sequences, sampler, Method(start=uniform_start), WINDOWS, seed)
    segments = watched.go(starts, size.steps, size.looks)
    found.add(label, segments, late_average(segments), _Scored(which, model, truth, train, test))


def _settings(size: Size) -> dict[str, Any]:
    return {
        **asdict(size),
        **describe(WINDOWS),
        "step_size": f"{RATE} (1 + n / {OFFSET:g})^-{POWER}, relative",
        "priors": "N(0, 1) on mu, its positive half on sigma; normal-inverse-Wishart scaled to the data",
        "selection": "held-out log probability at the posterior mode",
        "buffered": "SG-RLD of the log-normal model with two states",
    }
