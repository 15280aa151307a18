"""Stochastic variational inference against exact Gibbs draws on a short piece of the reversed cycles.

The claim: a mean-field posterior leaves out the dependence between parameters, and so underestimates their
correlations (and, where states are hard to tell apart, their standard deviations). Parameters of one posterior depend
on one another, so pairs of them are no repetitions: the comparison is repeated on independent data sets.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from longhmm.data.sequences import Sequences, open_data
from longhmm.model.emissions.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.run.driver import Driver
from longhmm.samplers.stochastic_variational import StochasticVariational, draw_from_posterior
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.coordinates import unconstrain
from longhmm.target.systematic import Windows
from longhmm_reproduction import models, scoring
from longhmm_reproduction.chains import Params
from longhmm_reproduction.correlations import columns_of, effective_sizes, mixing, squared_correlations
from longhmm_reproduction.document import Document, describe, log
from longhmm_reproduction.exact import gibbs, natural_draws
from longhmm_reproduction.held_out import held_out_log_prob

WINDOWS = Windows(10, 20)
DISTURBED = 0.5  # standard deviations of the noise by which the means of other starts than the truth are off


def overlapping() -> models.Named:
    """Reversed cycles under twice the noise of RC-hard: states are uncertain even to those who know the dynamics."""
    model, params = models.rc_hard()
    return model, {**params, "covariance": 4.0 * params["covariance"]}


DATA = {"rc": models.rc, "rc-overlap": overlapping}


@dataclass(frozen=True)
class Size:
    """Observations to learn from and held out, data sets, Gibbs chains, sweeps kept and thrown away, variational
    steps, draws from the approximation, buffer (None: the Lyapunov rule), which data."""

    length: int
    held_out: int
    data_sets: int
    chains: int
    sweeps: int
    warmup: int
    steps: int
    draws: int
    buffer: int | None
    data: tuple[str, ...]


SIZES = {
    "tiny": Size(1_000, 500, 1, 2, 30, 10, 50, 100, 5, ("rc-overlap",)),
    "small": Size(4_000, 2_000, 4, 2, 800, 100, 1_000, 2_000, None, ("rc", "rc-overlap")),
    "paper": Size(20_000, 2_000, 5, 4, 1_000, 200, 5_000, 4_000, None, ("rc", "rc-overlap")),
}


class Sampled(NamedTuple):
    """Draws of one posterior, `(chain, draw, *shape)`, and what they took."""

    draws: Params
    seconds: float
    touched: float


def run(name: str, scale: str, seed: int = 0) -> dict[str, Any]:
    """Both posteriors on all data sets: standard deviations and correlations side by side."""
    size = SIZES[scale]
    found = Document(name, scale, seed, {**asdict(size), **describe(WINDOWS), "start": "truth, others near it"})
    found.extra["pairs"] = {data: _compare(found, data, size, seed) for data in size.data}
    return found.finish()


def _compare(found: Document, data: str, size: Size, seed: int) -> dict[str, Any]:
    """One kind of data: the metrics of both methods, and what is drawn of the first data set."""
    truth = DATA[data]()[1]
    plain = HMM(n_states=len(truth["transition"]), emission=Gaussian(dim=2))
    prepared: tuple[HMM, FixedBuffer] | None = None
    metrics: dict[str, dict[str, list[float]]] = {each: defaultdict(list) for each in ("gibbs", "svi")}
    shown: dict[str, Any] = {}
    for repetition in range(size.data_sets):
        _, values = simulate(plain, truth, size.length + size.held_out, seed=seed + repetition)
        train, test = values[: size.length], values[size.length :]
        sequences = open_data(train)
        # Priors and buffer that suit the first data set serve all of them: one program does.
        model, buffer = prepared = prepared or _prepare(plain, truth, sequences, size.buffer)
        starts = starts_near(truth, size.chains, seed + repetition)
        log(f"{found.name}: Gibbs on {data}, data set {repetition + 1}")
        options = {"warmup": size.warmup, "sweeps": size.sweeps, "seed": seed + repetition}
        exact = gibbs(model, sequences, starts, **options)
        log(f"{found.name}: SVI on {data}, data set {repetition + 1}")
        fitted = _svi(model, sequences, starts[0], buffer, size, seed + repetition)
        sampled = {"gibbs": Sampled(exact.draws, exact.seconds, exact.touched), "svi": fitted}
        columns = columns_of({label: each.draws for label, each in sampled.items()})
        squares = {}
        for label, each in sampled.items():
            squares[label] = squared_correlations(columns[label])
            mean = {key: value.mean(axis=(0, 1)) for key, value in each.draws.items()}
            row = metrics[label]
            row["predictive_log_prob"].append(held_out_log_prob(model, mean, train, test))
            row["transition_error"].append(scoring.transition_error(mean, truth, "mean"))
            row["seconds"].append(each.seconds)
            row["observations_touched"].append(each.touched)
            row["rms_correlation"].append(float(np.sqrt(max(squares[label].products.mean(), 0.0))))
        sizes = effective_sizes(columns["gibbs"], squares["gibbs"])
        metrics["gibbs"]["least_correlation_ess"].append(float(sizes.min()))
        metrics["gibbs"]["median_correlation_ess"].append(float(np.median(sizes)))
        metrics["gibbs"]["largest_rhat"].append(float(mixing(columns["gibbs"].values).max()))
        ratio = columns["svi"].deviations() / columns["gibbs"].deviations()
        metrics["svi"]["median_sd_ratio"].append(float(np.median(ratio)))
        metrics["svi"]["least_sd_ratio"].append(float(ratio.min()))
        missing = squares["gibbs"].products.mean() - squares["svi"].products.mean()
        metrics["svi"]["missing_squared_correlation"].append(float(missing))
        if not shown:
            shown = {"sd_ratio": ratio, **{label: each.correlations for label, each in squares.items()}}
    for label, row in metrics.items():
        found.note(f"{label}-{data}", row)
    return shown


def _prepare(plain: HMM, truth: Params, sequences: Sequences, buffer: int | None) -> tuple[HMM, FixedBuffer]:
    """The model with priors scaled to the data, and the buffer of the variational windows."""
    model = plain.resolve(sequences)
    if buffer is None:
        buffer = LyapunovBuffer().estimate(model, _lifted(truth), sequences).length
    return model, FixedBuffer(buffer)


def starts_near(truth: Params, count: int, seed: int) -> list[Params]:
    """The truth, and others with disturbed means and rows half way to flat ones; states keep their names."""
    rng = np.random.default_rng(seed)
    noise = np.sqrt(np.diagonal(truth["covariance"], axis1=1, axis2=2))
    starts = [_lifted(truth)]
    for _ in range(count - 1):
        moved = truth["mean"] + DISTURBED * noise * rng.normal(size=truth["mean"].shape)
        rows = (truth["transition"] + 1.0 / len(truth["transition"])) / 2
        starts.append({**truth, "mean": moved, "transition": rows})
    return starts


def _lifted(truth: Params) -> Params:
    """The truth with no transition quite impossible."""
    rows = truth["transition"] + 1e-3
    return {**truth, "transition": rows / rows.sum(axis=1, keepdims=True)}


def _svi(model: HMM, sequences: Sequences, start: Params, buffer: FixedBuffer, size: Size, seed: int) -> Sampled:
    began = time.perf_counter()
    sampler = StochasticVariational()
    target = sampler.estimator(WINDOWS, buffer).bind(model, sequences, start)
    driver = Driver(sampler, target, seed)
    run = driver.start([unconstrain(model, start)])
    driver.advance(run, 1, size.steps, record=False)
    state = jax.tree.map(jax.numpy.asarray, run.states[0])
    drawn = draw_from_posterior(model, jax.random.key(seed), state, size.draws)
    # Two chains of independent draws, as the comparison wants them.
    halves = {key: np.stack(np.array_split(np.asarray(value), 2)) for key, value in drawn.items()}
    draws = natural_draws(model, halves)
    width = WINDOWS.core_length + 2 * buffer.length
    return Sampled(draws, time.perf_counter() - began, float(size.steps * WINDOWS.count * width))
