"""Diagonally dominant and reversed cycles: buffered, unbuffered and i.i.d. SG-RLD, and longhmm's own pipeline.

The paper's claim is buffered > unbuffered > i.i.d. in prediction ten steps ahead and in the error of the transition
matrix. Not in the paper, and chosen here: step sizes, five inner steps, flat transition rows to start from, and the
error norm (Frobenius, after matching states). RC-hard starts from the truth disturbed instead of from k-means, which
cannot tell its look-alikes apart: different local modes would hide the difference between the methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from longhmm.data.sequences import Sequences, open_data
from longhmm.model.emissions.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.samplers.schedules import PolynomialDecay
from longhmm.samplers.sgrld import SGRLD
from longhmm.target.buffer_report import buffer_report
from longhmm.target.buffered import stationary_start, uniform_start
from longhmm.target.systematic import Windows
from longhmm_reproduction import models, scoring
from longhmm_reproduction.chains import Method, Params, Watched, late_average
from longhmm_reproduction.clusters import k_means_start
from longhmm_reproduction.document import Document, describe, log
from longhmm_reproduction.kept import Kept
from longhmm_reproduction.pipeline import run_default
from longhmm_reproduction.repetitions import run_repetitions
from longhmm_reproduction.scoring import with_errors

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
        repetitions: of everything, each with data, held-out data, start and windows of its own.
        length: observations to learn from.
        steps: of every SG-RLD chain; `looks` at where they are.
        held_out: stretches of `stretch` observations to predict.
        chains, draws: of the default pipeline.
        trade_off: half-widths among which the budget of one step is divided.
        everything: also stationary starts and the buffer report.
        windows_only: the default pipeline keeps to windows, though exact gradients would cost less per draw: their
            program takes longer to compile than all the rest.
    """

    repetitions: int
    length: int
    steps: int
    looks: int
    held_out: int
    stretch: int
    chains: int
    draws: int
    trade_off: tuple[int, ...]
    everything: bool
    windows_only: bool


SIZES = {
    "tiny": Size(2, 12_000, 300, 3, 10, 150, 2, 5, (), False, True),
    "small": Size(4, 200_000, 4_000, 10, 100, 200, 2, 50, (), False, False),
    "paper": Size(4, 20_000_000, 30_000, 20, 200, 250, 2, 50, (1, 2, 5, 20), True, False),
}
RATE, OFFSET, POWER = 0.5, 1000.0, 0.6  # step sizes are RATE / T (1 + n / OFFSET)^-POWER
INNER_STEPS = 5
CLUSTERED = 4000  # rows that k-means groups
CERTIFIED = 500_000  # observations whose cells the buffer report looks at
BUDGET = 220  # observations read in one step, when the number of windows and their length are traded


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


def run(name: str, scale: str, seed: int = 0, workers: int = 1, keep: Path | None = None) -> dict[str, Any]:
    """The whole experiment: settings, results, and curves; finished parts are kept in the folder `keep`, if any."""
    case, size = CASES[name], SIZES[scale]
    found = Document(name, scale, seed, {**_settings(case, size), "workers": workers})
    seeds = [1000 * seed + repetition for repetition in range(size.repetitions)]
    parts = list(run_repetitions(partial(run_one, name, scale, keep), seeds, workers))
    for part in parts:
        found.join(part)
    # One value per repetition.
    for label in ("certificate", "default"):
        found.settings[label] = [part.settings[label] for part in parts if label in part.settings]
    truths = [part.settings["truth"]["predictive_log_prob"] for part in parts]
    found.settings["truth"] = with_errors({"predictive_log_prob": truths})
    return found.finish()


def run_one(name: str, scale: str, keep: Path | None, seed: int) -> Document:
    """One repetition: every method on the same data."""
    bench = _Bench(name, scale, seed)
    size, found = bench.size, Document(name, scale, seed, {"truth": {"predictive_log_prob": bench.best}})
    kept = Kept(keep, _settings(bench.case, size))
    for label in METHODS:
        if size.everything or label in PAPER_METHODS:
            kept.part(found, label, partial(_sgrld, bench, label, METHODS[label], bench.case.windows, 1))
    buffer = found.curves["buffered"]["buffer"][-1]
    for half_width in size.trade_off:
        for label, around in (("unbuffered", 0), ("buffered", buffer)):
            # Many short windows or a few long ones, for the same number of observations.
            windows = Windows(half_width, max(1, round(BUDGET / (2 * half_width + 1 + 2 * around))))
            method = Method(buffer=around, start=uniform_start)
            name_of_part = f"budget-{label}-L{half_width}"
            kept.part(found, name_of_part, partial(_sgrld, bench, name_of_part, method, windows, 2))
    if size.everything:
        kept.part(found, "certificate", partial(_certify, bench))
    kept.part(found, "default", partial(_default, bench))
    return found


def _sgrld(bench: _Bench, label: str, method: Method, windows: Windows, share: int, found: Document) -> None:
    """A chain of SG-RLD, of all steps or of one in `share` of them."""
    size = bench.size
    segments = bench.watch(method, windows).go([bench.start], size.steps // share, size.looks)
    found.add(label, segments, late_average(segments), partial(bench.score, method.kind == "iid"))


def _default(bench: _Bench, found: Document) -> None:
    size = bench.size
    piped = run_default(
        bench.model,
        bench.sequences,
        chains=size.chains,
        draws=size.draws,
        seed=bench.seed,
        windows_only=size.windows_only,
    )
    pooled = [each._replace(params=_pooled(each.params), steps=look) for look, each in enumerate(piped.segments)]
    found.add("default", pooled, pooled[-1].params, partial(bench.score, False))
    found.settings["default"] = piped.settings


def _certify(bench: _Bench, found: Document) -> None:
    """Bias of posterior means, in posterior standard deviations, that windows without buffers cause at the truth."""
    model, truth, sequences = bench.model, bench.truth, bench.sequences
    part = open_data(sequences.rows(0, min(sequences.length, CERTIFIED)).values)
    # Entries that never occur have no posterior spread to measure a bias with: the buffer report leaves them out.
    possible = HMM(model.n_states, model.emission, transition_prior=(truth["transition"] > 0).astype(float))
    how = partial(buffer_report, possible, truth, part, windows=bench.case.windows, buffers=[0], blocks=part.length)
    starts = {"uniform": uniform_start, "stationary": stationary_start}
    found.settings["certificate"] = {label: how(start=start).rows[0].bias for label, start in starts.items()}


class _Bench:
    """What all methods share in one repetition: data, a start, and how parameters are judged."""

    def __init__(self, name: str, scale: str, seed: int) -> None:
        self.case, self.size, self.seed = CASES[name], SIZES[scale], seed
        size = self.size
        self.truth = self.case.build()[1]
        self.model = flat_model()
        log(f"{name}: simulating {size.length:,} observations")
        _, values = simulate(self.model, self.truth, size.length + size.held_out * size.stretch, seed=seed)
        self.held_out = scoring.cut_stretches(values[size.length :], size.held_out, size.stretch)
        self.sequences = open_data(values[: size.length])
        self.start = starting_point(self.case, self.model, self.truth, self.sequences, seed)
        self.best = scoring.predictive_log_prob(self.model, self.truth, self.held_out)

    def watch(self, method: Method, windows: Windows) -> Watched:
        """A chain of SG-RLD with the paper's step sizes."""
        sampler = SGRLD.paper(PolynomialDecay(RATE / self.size.length, OFFSET, POWER), INNER_STEPS)
        return Watched(self.model, self.sequences, sampler, method, windows, self.seed)

    def score(self, independent: bool, params: Params) -> dict[str, float]:
        """How well parameters predict, how much worse than the true ones, and how far their transitions are off."""
        seen = scoring.as_independent(params) if independent else params
        predicted = scoring.predictive_log_prob(self.model, seen, self.held_out)
        return {
            "predictive_log_prob": predicted,
            "predictive_loss": self.best - predicted,
            "transition_error": scoring.transition_error(seen, self.truth, "mean"),
        }


def _pooled(params: Params) -> Params:
    """The mean over chains, as that of a single one."""
    return {name: value.mean(axis=0, keepdims=True) for name, value in params.items()}


@cache
def flat_model() -> HMM:
    """Eight Gaussian states in two dimensions under flat priors, as in the paper; one object, compiled for once."""
    mean = dist.ImproperUniform(constraints.real, (), (2,))
    covariance = dist.ImproperUniform(constraints.positive_definite, (), (2, 2))
    return HMM(n_states=8, emission=Gaussian(dim=2, mean=mean, covariance=covariance))


def starting_point(case: Case, model: HMM, truth: Params, sequences: Sequences, seed: int) -> Params:
    """k-means of rows drawn at random, or the truth disturbed; transitions flat, or half way."""
    n_states = model.n_states
    flat = np.full((n_states, n_states), 1.0 / n_states)
    rng = np.random.default_rng([seed, 0])
    if case.start == "k-means":
        places = np.sort(rng.choice(sequences.length, min(CLUSTERED, sequences.length), replace=False))
        return {**k_means_start(sequences.take(places)[0], n_states, rng), "transition": flat}
    shift = rng.normal(scale=3.0, size=truth["mean"].shape)
    half_way = 0.5 * truth["transition"] + 0.5 * flat
    return {"mean": truth["mean"] + shift, "covariance": truth["covariance"], "transition": half_way}


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
        "certified": CERTIFIED if size.everything else 0,
    }
