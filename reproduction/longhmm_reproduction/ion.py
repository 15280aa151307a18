"""Single channels: SG-RLD against batch RLD, by the paper's recipe (decimate, logarithm, normalise, flat priors).

Errors of the transition matrix are distances from the posterior mean that Gibbs chains with other random numbers find
on the same data, for every method alike. How much faster a method is, is read off the time from which on a chain's
error stays below a tenth of what it was at the start: a target that depends neither on the methods nor on how long they
run, and lies above the noise of chains that have arrived.
Where the paper's recording is not at hand, others stand in for it (see `channels`): what is measured then is the speed
of the methods there, not the paper's figures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from longhmm.backends.answers import decode
from longhmm.data.sequences import open_data
from longhmm.model.emissions.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.samplers.contract import Sampler
from longhmm.samplers.schedules import Constant, PolynomialDecay
from longhmm.samplers.sgrld import SGRLD, BatchRLD
from longhmm.target.buffered import uniform_start
from longhmm.target.systematic import Windows
from longhmm_reproduction import scoring
from longhmm_reproduction.chains import Method, Params, Segment, Watched, late_average
from longhmm_reproduction.channels import Record, Records, records
from longhmm_reproduction.clusters import k_means_start
from longhmm_reproduction.document import Document, chains_of, describe, log
from longhmm_reproduction.exact import Exact, gibbs
from longhmm_reproduction.held_out import held_out_log_prob
from longhmm_reproduction.pipeline import run_default
from longhmm_reproduction.targets import chains_settled, ratios

WINDOWS = Windows(10, 10)
RATE, OFFSET, POWER = 0.02, 1000.0, 0.6
BATCH_RATE = 0.1
TARGET = 0.1  # of the error of flat rows, where all chains begin
GROUPED = 5_000  # observations that k-means groups
SEGMENTED, SHOWN = 100_000, 600  # most observations that are segmented, and those of them that are shown
MOMENTS = (0.01, 0.1, 1.0)  # of the time that both methods ran, at which they are segmented


@dataclass(frozen=True)
class Size:
    """Most observations used and held out; steps of SG-RLD and of batch RLD; looks; chains; draws of the default;
    sweeps of the reference kept and thrown away, and its chains; most recordings; buffer (None: the Lyapunov rule);
    whether the default keeps to windows (see `simulated`)."""

    length: int
    held_out: int
    steps: int
    batch_steps: int
    looks: int
    repetitions: int
    draws: int
    sweeps: int
    warmup: int
    references: int
    recordings: int
    buffer: int | None = None
    windows_only: bool = False


SIZES = {
    "tiny": Size(5_000, 1_000, 1_000, 30, 5, 2, 10, 30, 10, 1, 1, 10, True),
    "small": Size(50_000, 5_000, 6_000, 100, 16, 4, 50, 200, 50, 2, 2),
    "paper": Size(1_000_000, 5_000, 20_000, 400, 24, 8, 200, 500, 100, 4, 4),
}


def run(name: str, scale: str, seed: int = 0) -> dict[str, Any]:
    """The whole experiment: settings, results, curves, segmentations and ratios of speeds."""
    size = SIZES[scale]
    there = records(size.recordings)
    found = Document(name, scale, seed, _settings(size, there))
    found.extra["recordings"] = {}
    for index, recording in enumerate(there.found):
        _study(found, recording, f"-{recording.name}" if index else "", size, seed)
    return found.finish()


def _study(found: Document, recording: Record, suffix: str, size: Size, seed: int) -> None:
    """All methods on one recording; their names get a suffix on all but the first."""
    values = recording.values[: size.length + size.held_out, None]
    train, test = values[: -size.held_out], values[-size.held_out :]
    sequences = open_data(train)
    model = flat_model(recording.states)
    starts = _starts(train, recording.states, max(size.repetitions, size.references), seed)
    log(f"{found.name}: Gibbs on {recording.name}")
    # Other random numbers than those of the chains that are held against it.
    options = {"warmup": size.warmup, "sweeps": size.sweeps, "seed": seed + 1_000_003}
    exact = gibbs(model, sequences, starts[: size.references], **options)
    judge = Judge(model, exact, train, test)
    found.note(f"gibbs{suffix}", judge.reference_itself(exact))
    log(f"{found.name}: default on {recording.name}")
    amount = {"chains": size.repetitions, "draws": size.draws}
    piped = run_default(model, sequences, **amount, seed=seed, windows_only=size.windows_only)
    found.add(f"default{suffix}", piped.segments, piped.segments[-1].params, judge)
    found.settings[f"default{suffix}"] = piped.settings
    methods: dict[str, tuple[Sampler, Method, int]] = {
        "buffered": (
            SGRLD(PolynomialDecay(RATE, OFFSET, POWER), start=uniform_start),
            Method(buffer=size.buffer, start=uniform_start),
            size.steps,
        ),
        "batch": (BatchRLD(Constant(BATCH_RATE)), Method("batch"), size.batch_steps),
    }
    segments: dict[str, list[Segment]] = {}
    for label, (sampler, method, steps) in methods.items():
        log(f"{found.name}: {label} on {recording.name}")
        watched = Watched(model, sequences, sampler, method, WINDOWS, seed)
        segments[label] = watched.go(starts[: size.repetitions], steps, size.looks)
        found.add(f"{label}{suffix}", segments[label], late_average(segments[label]), judge)
    about = {"states": recording.states, "observations": len(train), "decimation": recording.decimation}
    found.extra["recordings"][recording.name] = {
        "suffix": suffix,
        "substitute": recording.substitute,
        **about,
        **_speed(found, judge, suffix),
        "segmentations": _segmentations(judge, train[:SEGMENTED], starts[0], segments),
    }


def flat_model(n_states: int) -> HMM:
    """Gaussian levels under flat priors."""
    mean, sd = (dist.ImproperUniform(support, (), ()) for support in (constraints.real, constraints.positive))
    return HMM(n_states=n_states, emission=Gaussian(mean=mean, sd=sd))


class Judge:
    """Distance of transitions from the exact posterior mean, and held-out log probability."""

    def __init__(self, model: HMM, exact: Exact, train: np.ndarray, test: np.ndarray) -> None:
        self.model, self.train, self.test = model, train, test
        best = exact.best()
        if len(best["transition"]) == 1:  # the halves of a single chain
            best = {name: np.stack(np.array_split(value[0, len(value[0]) % 2 :], 2)) for name, value in best.items()}
        self.chains = {name: value.mean(axis=1) for name, value in best.items()}
        self.reference = scoring.mean_params(self.chains)
        # Frobenius, as errors are: what a single draw is away from the mean.
        self.spread = float(np.sqrt(best["transition"].var(axis=(0, 1)).sum()))

    def __call__(self, params: Params) -> dict[str, float]:
        return {
            "predictive_log_prob": held_out_log_prob(self.model, params, self.train, self.test),
            "transition_error": scoring.transition_error(params, self.reference, "mean"),
        }

    def reference_itself(self, exact: Exact) -> dict[str, list[float]]:
        """Metrics of the reference's own chains; the error of each is its distance from the mean of the others."""
        chains, errors = chains_of(self.chains), []
        for index, each in enumerate(chains):
            others = {name: np.delete(value, index, axis=0).mean(axis=0) for name, value in self.chains.items()}
            errors.append(scoring.transition_error(each, others, "mean"))
        return {
            "predictive_log_prob": [held_out_log_prob(self.model, each, self.train, self.test) for each in chains],
            "transition_error": errors,
            "seconds": [exact.seconds],
            "observations_touched": [exact.touched],
        }


def _starts(train: np.ndarray, n_states: int, count: int, seed: int) -> list[Params]:
    """k-means of different rows for the levels, which rise from state to state, and flat rows for the transitions."""
    rng, starts = np.random.default_rng(seed), []
    for _ in range(count):
        levels = k_means_start(rng.choice(train, size=min(GROUPED, len(train)), replace=False), n_states, rng)
        order = np.argsort(levels["mean"])
        flat = np.full((n_states, n_states), 1.0 / n_states)
        starts.append({**{name: value[order] for name, value in levels.items()}, "transition": flat})
    return starts


def _speed(found: Document, judge: Judge, suffix: str) -> dict[str, Any]:
    """Times of one step, and the time from which on the error of a chain stays below `TARGET` of that of flat rows."""
    reference = judge.reference["transition"]
    target = TARGET * float(np.linalg.norm(1.0 / len(reference) - reference))
    arrived, per_step = {}, {}
    for label in ("buffered", "batch"):
        curve, row = found.curves[label + suffix], found.results[label + suffix]
        arrived[label] = chains_settled(curve["seconds"], curve["transition_error"], target)
        per_step[label] = row["seconds_per_step"] = curve["seconds"][-1] / curve["steps"][-1]
        row["seconds_to_target"] = float(np.median(arrived[label]))
    faster = ratios(arrived["buffered"], arrived["batch"], found.curves[f"batch{suffix}"]["seconds"][-1])
    return {
        "target_error": target,
        "posterior_spread": judge.spread,
        "seconds_to_target": arrived,
        "steps_of_sgrld_per_batch_step": per_step["batch"] / per_step["buffered"],
        "speed_ratio": faster._asdict(),
    }


def _segmentations(judge: Judge, train: np.ndarray, start: Params, segments: dict[str, list[Segment]]) -> Any:
    """The data as decoded by the first chain of each method at the same three moments of wall time."""

    def path(params: Params) -> np.ndarray:
        return decode(judge.model, scoring.matched(params, judge.reference, "mean"), train)

    reference, first = path(judge.reference), path(start)
    # Shown is the stretch with several states that the start gets most wrong, so that there is something to see.
    stretches = [slice(begin, begin + SHOWN) for begin in range(0, len(train) - SHOWN + 1, SHOWN)]
    worth = [(np.ptp(reference[each]) > 0, np.sum(first[each] != reference[each])) for each in stretches]
    begin = stretches[max(range(len(worth)), key=worth.__getitem__)].start
    shown = slice(begin, begin + SHOWN)
    end = min(each[-1].seconds for each in segments.values())
    moments = []
    for label, looks in segments.items():
        for share in MOMENTS:
            before = [look for look in looks if look.seconds <= share * end]
            here = path(chains_of(before[-1].params)[0]) if before else first
            moment = {"method": label, "seconds": share * end, "steps": before[-1].steps if before else 0}
            moments.append({**moment, "path": here[shown], "differing": float(np.mean(here != reference))})
    return {"first": begin, "values": train[shown, 0], "reference": reference[shown], "moments": moments}


def _settings(size: Size, there: Records) -> dict[str, Any]:
    return {
        **asdict(size),
        **describe(WINDOWS),
        "recording": ", ".join(each.name for each in there.found),
        "substitute_for_alamethicin": there.found[0].substitute,
        "not_found": there.missing,
        "step_size": f"{RATE} (1 + n / {OFFSET:g})^-{POWER}, relative; batch {BATCH_RATE}",
        "priors": "flat",
        "reference": "transition_error is the distance from the posterior mean of Gibbs chains with another seed",
        "target": f"errors that stay below {TARGET:g} of that of flat rows, where all chains begin",
    }
