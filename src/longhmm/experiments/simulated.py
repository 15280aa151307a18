"""Diagonally dominant and reversed cycles: buffered, unbuffered and i.i.d. SG-RLD, and longhmm's own pipeline.

The paper's claim is buffered > unbuffered > i.i.d. in prediction ten steps ahead and in the error of the transition
matrix. Not in the paper, and chosen here: step sizes, five inner steps, flat transition rows to start from, and the
error norm (Frobenius, after matching states). RC-hard starts from the truth disturbed instead of from k-means, which
cannot tell its look-alikes apart: different local modes would hide the difference between the methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from longhmm.data.sequences import Sequences, open_data
from longhmm.experiments import models, scoring
from longhmm.experiments.chains import Method, Params, Watched, late_average
from longhmm.experiments.clusters import k_means_start
from longhmm.experiments.document import describe, document, log
from longhmm.experiments.pipeline import run_default
from longhmm.gradients.certificate import certificate
from longhmm.gradients.estimators import stationary_start, uniform_start
from longhmm.gradients.schemes import Windows
from longhmm.model.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.samplers.schedules import PolynomialDecay
from longhmm.samplers.sgrld import SGRLD

METHODS = {
    "buffered": Method(start=uniform_start),
    "unbuffered": Method(buffer=0, start=uniform_start),
    "iid": Method("iid"),
    "buffered-stationary": Method(start=stationary_start),
    "unbuffered-stationary": Method(buffer=0, start=stationary_start),
}
PAPER_METHODS = ("buffered", "unbuffered", "iid")


@dataclass(frozen=True)
class Size:
    """How large an experiment is.

    Attributes:
        length: observations to learn from.
        steps: of every SG-RLD chain; `looks` at where they are.
        repetitions: chains of every method.
        held_out: stretches of `stretch` observations to predict.
        trade_off: half-widths among which the budget of one step is divided.
        everything: also stationary starts and the certificate.
    """

    length: int
    steps: int
    looks: int
    repetitions: int
    held_out: int
    stretch: int
    draws: int
    trade_off: tuple[int, ...]
    everything: bool


SIZES = {
    "tiny": Size(20_000, 300, 4, 2, 20, 150, 20, (), False),
    "small": Size(200_000, 4_000, 10, 4, 100, 200, 50, (1, 20), True),
    "paper": Size(20_000_000, 30_000, 20, 4, 200, 250, 200, (1, 2, 5, 20), True),
}
RATE, OFFSET, POWER = 0.5, 1000.0, 0.6  # step sizes are RATE / T (1 + n / OFFSET)^-POWER
INNER_STEPS = 5
CLUSTERED = 4000  # rows that k-means groups
CELLS = 1000  # that the certificate looks at
BUDGET = 220  # observations in the cores of one step, when their number and length are traded


@dataclass(frozen=True)
class Case:
    """One data set of the paper: its model, its truth, the paper's windows, and how chains start."""

    name: str
    build: Callable[[], models.Named]
    windows: Windows
    start: str


CASES = {
    "dd": Case("dd", models.dd, Windows(2, 10), "k-means"),
    "rc": Case("rc", models.rc, Windows(5, 4), "k-means"),
    "rc-hard": Case("rc-hard", models.rc_hard, Windows(5, 4), "disturbed truth"),
}


def run(name: str, scale: str, seed: int = 0) -> dict[str, Any]:
    """The whole experiment: settings, results, and curves."""
    size, case = SIZES[scale], CASES[name]
    truth = case.build()[1]
    model = flat_model()
    log(f"{name}: simulating {size.length:,} observations")
    _, values = simulate(model, truth, size.length + size.held_out * size.stretch, seed=seed)
    held_out = scoring.cut_stretches(values[size.length :], size.held_out, size.stretch)
    sequences = open_data(values[: size.length])
    starts = starting_points(case, model, truth, sequences, size.repetitions, seed)
    score = partial(_score, model, truth, held_out)
    found = document(name, scale, seed, _settings(case, size))
    sampler = SGRLD.paper(PolynomialDecay(RATE / size.length, OFFSET, POWER), INNER_STEPS)
    for label, method in METHODS.items():
        if not size.everything and label not in PAPER_METHODS:
            continue
        log(f"{name}: {label}")
        watched = Watched(model, sequences, sampler, method, case.windows, seed)
        segments = watched.go(starts, size.steps, size.looks)
        found.add(label, segments, late_average(segments), partial(score, method.kind == "iid"))
    log(f"{name}: default")
    piped = run_default(model, sequences, chains=size.repetitions, draws=size.draws, seed=seed)
    found.add("default", piped.segments, piped.segments[-1].params, partial(score, False))
    found.settings["default"] = piped.settings
    for half_width in size.trade_off:
        _trade(found, half_width, model, sequences, sampler, starts, size, seed, score)
    if size.everything:
        log(f"{name}: certificate")
        found.settings["certificate"] = _certified(model, truth, sequences, case.windows)
    truth_scores = score(False, {key: np.asarray(value) for key, value in truth.items()})
    found.settings["truth"] = truth_scores
    return found.finish()


def flat_model() -> HMM:
    """Eight Gaussian states in two dimensions under flat priors, as in the paper."""
    mean = dist.ImproperUniform(constraints.real, (), (2,))
    covariance = dist.ImproperUniform(constraints.positive_definite, (), (2, 2))
    return HMM(n_states=8, emission=Gaussian(dim=2, mean=mean, covariance=covariance))


def starting_points(case: Case, model: HMM, truth: Params, sequences: Sequences, count: int, seed: int) -> list[Params]:
    """One start per chain: k-means of rows drawn at random, or the truth disturbed; transitions flat, or half way."""
    n_states = model.n_states
    flat = np.full((n_states, n_states), 1.0 / n_states)
    found = []
    for chain in range(count):
        rng = np.random.default_rng([seed, chain])
        if case.start == "k-means":
            places = np.sort(rng.choice(sequences.length, min(CLUSTERED, sequences.length), replace=False))
            rows = np.concatenate([sequences.read(int(place), int(place) + 1).values for place in places])
            found.append({**k_means_start(rows, n_states, rng), "transition": flat})
        else:
            shift = rng.normal(scale=3.0, size=truth["mean"].shape)
            half_way = 0.5 * truth["transition"] + 0.5 * flat
            found.append({"mean": truth["mean"] + shift, "covariance": truth["covariance"], "transition": half_way})
    return found


def _score(model: HMM, truth: Params, held_out: np.ndarray, independent: bool, params: Params) -> dict[str, float]:
    seen = scoring.as_independent(params) if independent else params
    return {
        "predictive_log_prob": scoring.predictive_log_prob(model, seen, held_out),
        "transition_error": scoring.transition_error(seen, truth, "mean"),
    }


def _trade(
    found: Any,
    half_width: int,
    model: HMM,
    sequences: Sequences,
    sampler: SGRLD,
    starts: list[Params],
    size: Size,
    seed: int,
    score: Callable[..., dict[str, float]],
) -> None:
    """The same number of observations per step as a few long windows or as many short ones."""
    windows = Windows(half_width, max(1, BUDGET // (2 * half_width + 1)))
    label = f"budget-L{half_width}-S{windows.count}"
    log(f"{found.name}: {label}")
    watched = Watched(model, sequences, sampler, Method(buffer=0, start=uniform_start), windows, seed)
    segments = watched.go(starts, size.steps // 2, size.looks)
    found.add(label, segments, late_average(segments), partial(score, False))


def _certified(model: HMM, truth: Params, sequences: Sequences, windows: Windows) -> dict[str, Any]:
    """Bias of posterior means, in posterior standard deviations, that windows cause at the true parameters."""
    part = open_data(sequences.read(0, min(sequences.length, 500_000)).values)
    found: dict[str, Any] = {"observations": part.length, "cells": CELLS}
    # Entries that never occur have no posterior spread to measure a bias with: the certificate leaves them out.
    possible = HMM(model.n_states, model.emission, transition_prior=(truth["transition"] > 0).astype(float))
    for label, start in (("uniform", uniform_start), ("stationary", stationary_start)):
        seen = certificate(possible, truth, part, windows=windows, buffers=[0, 2, 8], start=start, cells=CELLS)
        found[label] = {str(row.buffer): {"bias": row.bias, "error": row.bias_error} for row in seen.rows}
    return found


def _settings(case: Case, size: Size) -> dict[str, Any]:
    return {
        **asdict(size),
        **describe(case.windows),
        "start": case.start,
        "start_transitions": "flat" if case.start == "k-means" else "half way between truth and flat",
        "step_size": f"{RATE} / T (1 + n / {OFFSET:g})^-{POWER}",
        "inner_steps": INNER_STEPS,
        "priors": "flat",
        "budget": BUDGET,
    }
