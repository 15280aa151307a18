"""A single channel: SG-RLD against batch RLD, by the paper's recipe (decimate, logarithm, normalise, flat priors).

The paper used a recording of alamethicin, `alamethicin.mat`. It is read where the environment variable
LONGHMM_ALAMETHICIN names it; otherwise the nanopore recording that comes with longhmm takes its place, which is another
channel and another instrument: what is compared then is the speed of the methods, not the paper's figures.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from longhmm.data.sequences import Sequences, open_data
from longhmm.datasets import nanopore
from longhmm.errors import DataError
from longhmm.experiments import scoring
from longhmm.experiments.chains import Method, Params, Segment, Watched, late_average
from longhmm.experiments.document import Document, chains_of, describe, document, log
from longhmm.experiments.lognormal import held_out_log_prob
from longhmm.experiments.pipeline import run_default
from longhmm.gradients.estimators import uniform_start
from longhmm.gradients.schemes import Windows
from longhmm.kernels.answers import decode
from longhmm.model.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.model.initialise import initial_params
from longhmm.samplers.batch_rld import BatchRLD
from longhmm.samplers.contract import Sampler
from longhmm.samplers.schedules import Constant, PolynomialDecay
from longhmm.samplers.sgrld import SGRLD

ENVIRONMENT = "LONGHMM_ALAMETHICIN"
WINDOWS = Windows(10, 10)
RATE, OFFSET, POWER = 0.02, 1000.0, 0.6
BATCH_RATE = 0.1
SHOWN = 2_000  # observations of the segmentations


class Record(NamedTuple):
    """A recording made ready: where it is from, whether it stands in for the paper's, values, and states to fit."""

    name: str
    substitute: bool
    values: np.ndarray
    states: int
    decimation: int


@dataclass(frozen=True)
class Size:
    """Most observations used and held out; steps of SG-RLD and of batch RLD; looks; chains; draws of the default."""

    length: int
    held_out: int
    steps: int
    batch_steps: int
    looks: int
    repetitions: int
    draws: int


SIZES = {
    "tiny": Size(5_000, 1_000, 200, 4, 3, 2, 20),
    "small": Size(100_000, 5_000, 4_000, 200, 10, 4, 100),
    "paper": Size(1_000_000, 5_000, 20_000, 400, 16, 4, 200),
}


def prepare(values: np.ndarray, decimation: int) -> np.ndarray:
    """The paper's recipe: every n-th sample, logarithms where all are positive, mean 0 and standard deviation 1."""
    kept = np.asarray(values, np.float64).reshape(-1)[::decimation]
    kept = np.log(kept) if kept.min() > 0 else kept
    return ((kept - kept.mean()) / kept.std()).astype(np.float32)


def read_alamethicin(path: str | os.PathLike[str]) -> np.ndarray:
    """The unfiltered current, `originaldata`, of `alamethicin.mat`, as a series."""
    if not Path(path).is_file():
        raise DataError(f"{ENVIRONMENT} must name the file alamethicin.mat, got {os.fspath(path)!r}: no such file.")
    from scipy.io import loadmat

    stored = loadmat(path, variable_names=["originaldata"])
    if "originaldata" not in stored:
        raise DataError(f"{os.fspath(path)} must hold an array 'originaldata', which was not found.")
    return np.asarray(stored["originaldata"], np.float64).reshape(-1)


def record() -> Record:
    """The paper's recording where the user has it, otherwise the nanopore."""
    path = os.environ.get(ENVIRONMENT)
    if path:
        return Record("alamethicin", False, prepare(read_alamethicin(path), 50), 5, 50)
    # Blockades last some 28 samples: taking every 50th would lose them, taking every 2nd keeps as many as the paper.
    return Record("nanopore", True, prepare(nanopore().values, 2), 2, 2)


def run(name: str, scale: str, seed: int = 0) -> dict[str, Any]:
    """The whole experiment: settings, results, curves, segmentations and the ratio of speeds."""
    size, recording = SIZES[scale], record()
    values = recording.values[: size.length + size.held_out, None]
    train, test = values[: -size.held_out], values[-size.held_out :]
    sequences = open_data(train)
    model = flat_model(recording.states)
    found = document(name, scale, seed, _settings(size, recording, len(train)))
    log(f"{name}: default")
    piped = run_default(model, sequences, chains=size.repetitions, draws=size.draws, seed=seed)
    means = piped.segments[-1].params
    reference = scoring.mean_params(means)
    judge = _Judge(model, reference, train, test)
    found.add("default", piped.segments, means, judge)
    found.settings["default"] = piped.settings
    starts = _starts(model, sequences, size.repetitions, seed)
    per_step = {}
    methods: dict[str, tuple[Sampler, Method]] = {
        "buffered": (SGRLD(PolynomialDecay(RATE, OFFSET, POWER), start=uniform_start), Method(start=uniform_start)),
        "batch": (BatchRLD(Constant(BATCH_RATE)), Method("batch")),
    }
    for label, (sampler, method) in methods.items():
        log(f"{name}: {label}")
        watched = Watched(model, sequences, sampler, method, WINDOWS, seed)
        steps = size.steps if label == "buffered" else size.batch_steps
        segments = watched.go(starts, steps, size.looks)
        found.add(label, segments, late_average(segments), judge)
        per_step[label] = segments[-1].seconds / segments[-1].steps
        if label == "buffered":
            found.extra["segmentations"] = _segmentations(model, train, segments)
    _compare(found, per_step)
    return found.finish()


def flat_model(n_states: int) -> HMM:
    """Gaussian levels under flat priors."""
    mean = dist.ImproperUniform(constraints.real, (), (1,))
    covariance = dist.ImproperUniform(constraints.positive_definite, (), (1, 1))
    return HMM(n_states=n_states, emission=Gaussian(mean=mean, covariance=covariance))


class _Judge:
    """Distance of transitions from the default pipeline's posterior mean, and held-out log probability."""

    def __init__(self, model: HMM, reference: Params, train: np.ndarray, test: np.ndarray) -> None:
        self.model, self.reference, self.train, self.test = model, reference, train, test

    def __call__(self, params: Params) -> dict[str, float]:
        return {
            "predictive_log_prob": held_out_log_prob(self.model, params, self.train, self.test),
            "transition_error": scoring.transition_error(params, self.reference, "mean"),
        }


def _starts(model: HMM, sequences: Sequences, count: int, seed: int) -> list[Params]:
    """k-means for the levels, flat rows for the transitions."""
    flat = np.full((model.n_states, model.n_states), 1.0 / model.n_states)
    guesses = initial_params(model, sequences, restarts=count, seed=seed)
    return [{"mean": each["mean"], "covariance": each["covariance"], "transition": flat} for each in guesses]


def _segmentations(model: HMM, train: np.ndarray, segments: list[Segment]) -> dict[str, Any]:
    """A stretch decoded at three moments of the first chain: at the first look, in the middle, and at the end."""
    # The stretch with the most contrast, so that there is something to segment.
    rows = train[: len(train) // SHOWN * SHOWN].reshape(-1, SHOWN)
    first = int(np.argmax(rows.std(axis=1))) * SHOWN
    stretch = train[first : first + SHOWN]
    moments = []
    for index in (0, len(segments) // 2, len(segments) - 1):
        params = chains_of(segments[index].params)[0]
        moments.append({"seconds": segments[index].seconds, "path": decode(model, params, stretch).tolist()})
    return {"first": first, "values": stretch[:, 0].tolist(), "moments": moments}


def _compare(found: Document, per_step: dict[str, float]) -> None:
    """Times of one step, and the time until the error is about the least that both methods reach."""
    found.results["buffered"]["seconds_per_step"] = per_step["buffered"]
    found.results["batch"]["seconds_per_step"] = per_step["batch"]
    found.settings["steps_of_sgrld_per_batch_step"] = per_step["batch"] / per_step["buffered"]
    errors = {label: np.mean(found.curves[label]["transition_error"], axis=1) for label in per_step}
    target = 1.05 * float(max(curve.min() for curve in errors.values()))
    found.settings["target_error"] = target
    for label, curve in errors.items():
        index = int(np.argmax(curve <= target))
        found.results[label]["seconds_to_target"] = float(found.curves[label]["seconds"][index])


def _settings(size: Size, recording: Record, length: int) -> dict[str, Any]:
    return {
        **asdict(size),
        **describe(WINDOWS),
        "recording": recording.name,
        "substitute_for_alamethicin": recording.substitute,
        "observations": length,
        "states": recording.states,
        "decimation": recording.decimation,
        "step_size": f"{RATE} (1 + n / {OFFSET:g})^-{POWER}, relative; batch {BATCH_RATE}",
        "priors": "flat",
        "reference": "transition_error is the distance from the posterior mean of the default pipeline",
    }
