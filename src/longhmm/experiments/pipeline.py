"""The default pipeline of longhmm as one more method: climb to the mode, then control-variate Langevin chains."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.experiments.chains import Segment, natural
from longhmm.gradients.api import constrain
from longhmm.model.hmm import HMM
from longhmm.progress import Bar
from longhmm.run.chains import Chains
from longhmm.run.request import Request
from longhmm.run.session import run_session
from longhmm.run.tuning import Tuning, tune
from longhmm.samplers.matched_langevin import MatchedLangevin

WARM_UP = 20  # autocorrelation times, as `sample` has it
MOST_STEPS = 10_000  # of a chain, some six times what windows usually take; beyond that the mode has to do


class Piped(NamedTuple):
    """Two looks, at the mode and at the posterior mean of every chain, the draws, and what the pipeline chose.

    Where chains on windows would take more than `MOST_STEPS`, there is but the first look, and no draws: `sample` would
    turn to exact gradients there, with many passes over all data for every draw.
    """

    segments: list[Segment]
    draws: Chains | None
    settings: dict[str, Any]


def run_default(model: HMM, sequences: Sequences, *, chains: int, draws: int, seed: int) -> Piped:
    """What `longhmm.sample` does with long data, with the clock and the rows that it reads; compiling is included."""
    rows = 0.0

    def count(amount: float) -> None:
        nonlocal rows
        rows += amount

    sampler = MatchedLangevin()
    began = time.perf_counter()
    found = tune(sampler, model, sequences, seed=seed, progress=count)
    climbed = time.perf_counter() - began
    mode = {name: np.stack([value] * chains) for name, value in constrain(model, found.mode.coordinates).items()}
    at_mode = Segment(0, mode, climbed, rows, found.mode.buffer, None)
    steps = (WARM_UP + draws) * found.autocorrelation
    if steps > MOST_STEPS:
        return Piped([at_mode], None, _stopped(found, steps))
    request = Request(model, sequences, sampler, None, None, chains, draws, None, None, None, seed, None, None, 0.0)
    drawn = run_session(request, Bar(False), found)
    seconds = time.perf_counter() - began
    chosen = drawn.settings
    read = chosen["steps"] * chosen["windows"] * (2 * chosen["half_width"] + 1 + 2 * chosen["buffer"])
    kept = {name: value[:, :: max(1, value.shape[1] // 50)] for name, value in drawn.coordinates.items()}
    means = natural(model, kept, lambda value: value.mean(axis=1))
    segments = [at_mode, Segment(chosen["steps"], means, seconds, rows + read, chosen["buffer"], None)]
    return Piped(segments, drawn, {name: value for name, value in chosen.items() if name != "versions"})


def _stopped(found: Tuning, steps: float) -> dict[str, Any]:
    """What was known when the pipeline stopped at the mode."""
    return {
        "stopped": f"at the mode, since chains on windows would take {steps:.1g} steps",
        "draws": 0,
        "step_size": found.step_size,
        "gradient_noise": found.noise,
        "windows": found.estimator.control.plain.source.windows.count,
        "half_width": found.mode.windows.half_width,
        "buffer": found.mode.buffer,
        "mode_log_posterior": found.mode.log_posterior,
        "full_passes": found.mode.passes,
        "squared_distance_to_the_mode": found.mode.decrement,
    }
