"""Diagonally dominant and reversed cycles: buffered, unbuffered and i.i.d. SG-RLD, and longhmm's own pipeline.

The paper's claim is buffered > unbuffered > i.i.d. in prediction ten steps ahead and in the error of the transition
matrix. Not in the paper, and chosen here: step sizes, five inner steps, flat transition rows to start from, and the
error norm (Frobenius, after matching states). RC-hard starts from the truth disturbed instead of from k-means, which
cannot tell its look-alikes apart: different local modes would hide the difference between the methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from longhmm.data.sequences import Sequences, open_data
from longhmm.experiments import models, scoring
from longhmm.experiments.chains import Method, Params, Watched, late_average
from longhmm.experiments.clusters import k_means_start
from longhmm.experiments.document import Document, describe, document, log
from longhmm.experiments.parts import run_parts
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
    "small": Size(200_000, 4_000, 10, 4, 100, 200, 50, (), False),
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


def run(name: str, scale: str, seed: int = 0, workers: int = 1) -> dict[str, Any]:
    """The whole experiment: settings, results, and curves."""
    case, size = CASES[name], SIZES[scale]
    found = document(name, scale, seed, {**_settings(case, size), "workers": workers})
    try:
        for part in run_parts(partial(run_part, name, scale, seed), _parts(size), workers):
            found.join(part)
    finally:
        _bench.cache_clear()
    return found.finish()


def run_part(name: str, scale: str, seed: int, part: str) -> Document:
    """One part of the experiment: a method, the default pipeline, a way to divide the budget, or the certificate."""
    log(f"{name}: {part}")
    bench = _bench(name, scale, seed)
    found = Document(name, scale, seed, {})
    if part in METHODS:
        method = METHODS[part]
        segments = bench.watch(method, bench.case.windows).go(bench.starts, bench.size.steps, bench.size.looks)
        found.add(part, segments, late_average(segments), partial(bench.score, method.kind == "iid"))
    elif part == "default":
        size = bench.size
        piped = run_default(bench.model, bench.sequences, chains=size.repetitions, draws=size.draws, seed=seed)
        found.add(part, piped.segments, piped.segments[-1].params, partial(bench.score, False))
        found.settings["default"] = piped.settings
    elif part == "certificate":
        found.settings[part] = _certified(bench.model, bench.truth, bench.sequences, bench.case.windows)
    elif part == "truth":
        found.settings[part] = bench.score(False, {key: np.asarray(value) for key, value in bench.truth.items()})
    else:
        _trade(found, part, bench)
    return found


def _parts(size: Size) -> list[str]:
    labels = [label for label in METHODS if size.everything or label in PAPER_METHODS]
    budgets = [_budget_label(half_width) for half_width in size.trade_off]
    return [*labels, "default", *budgets, *(["certificate"] if size.everything else []), "truth"]


class _Bench:
    """What all parts share: data, starts, and how parameters are judged."""

    def __init__(self, name: str, scale: str, seed: int) -> None:
        self.case, self.size, self.seed = CASES[name], SIZES[scale], seed
        size = self.size
        self.truth = self.case.build()[1]
        self.model = flat_model()
        log(f"{name}: simulating {size.length:,} observations")
        _, values = simulate(self.model, self.truth, size.length + size.held_out * size.stretch, seed=seed)
        held_out = scoring.cut_stretches(values[size.length :], size.held_out, size.stretch)
        self.sequences = open_data(values[: size.length])
        self.starts = starting_points(self.case, self.model, self.truth, self.sequences, size.repetitions, seed)
        self.score = partial(_score, self.model, self.truth, held_out)

    def watch(self, method: Method, windows: Windows) -> Watched:
        """Chains of SG-RLD with the paper's step sizes."""
        sampler = SGRLD.paper(PolynomialDecay(RATE / self.size.length, OFFSET, POWER), INNER_STEPS)
        return Watched(self.model, self.sequences, sampler, method, windows, self.seed)


_bench = lru_cache(maxsize=1)(_Bench)


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


def _budget(half_width: int) -> Windows:
    """The same number of observations per step, as a few long windows or as many short ones."""
    return Windows(half_width, max(1, BUDGET // (2 * half_width + 1)))


def _budget_label(half_width: int) -> str:
    return f"budget-L{half_width}-S{_budget(half_width).count}"


def _trade(found: Document, label: str, bench: _Bench) -> None:
    """One way to divide the budget, without buffers."""
    half_width = next(each for each in bench.size.trade_off if _budget_label(each) == label)
    watched = bench.watch(Method(buffer=0, start=uniform_start), _budget(half_width))
    segments = watched.go(bench.starts, bench.size.steps // 2, bench.size.looks)
    found.add(label, segments, late_average(segments), partial(bench.score, False))


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
