"""The default pipeline of longhmm as one more method: climb to the mode, then the chains that `sample` would run."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.progress import Bar
from longhmm.run.chains import Chains
from longhmm.run.request import Request
from longhmm.run.run import CHEAPER, Run, carry_out, cheaper
from longhmm.samplers.contract import Start
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.target.coordinates import constrain
from longhmm.target.target import StreamedPosterior
from longhmm_reproduction.chains import Segment, natural

MOST_ROWS = 1e10  # some minutes on two cores
ADAPTATION, PASSES = 350, 8  # steps before the first draw, and passes over the data per step, about


class Piped(NamedTuple):
    """Two looks, at the mode and at the posterior mean of every chain, and what the pipeline chose.

    Where exact gradients would take too long, the second look is at the mode too.
    """

    segments: list[Segment]
    settings: dict[str, Any]


class Rows(Bar):
    """A progress bar that is not shown, and counts the rows that passes over the data read."""

    def __init__(self) -> None:
        super().__init__(False)
        self.rows = 0.0

    def advance(self, amount: float) -> None:
        """Count `amount` where rows are counted."""
        super().advance(amount)
        if self.unit == "rows":
            self.rows += amount


def run_default(
    model: HMM, sequences: Sequences, *, chains: int, draws: int, seed: int, windows_only: bool = False
) -> Piped:
    """What `longhmm.sample` does, with the clock and the rows that it reads; compiling is included.

    With `windows_only` it does not turn to the exact sampler where that costs less; nor does it ever where that would
    read more than `MOST_ROWS`: `sample` would.
    """
    began, bar = time.perf_counter(), Rows()
    tuned = ControlVariateSGLD().tune(StreamedPosterior(model, sequences), Start(seed=seed, bar=bar))
    found = tuned.found
    climbed = time.perf_counter() - began
    mode = {name: np.stack([value] * chains) for name, value in constrain(model, found.mode).items()}
    at_mode = Segment(0, mode, climbed, bar.rows, found.buffer, None)
    exactly = cheaper(sequences.length, found.cost, draws) and not windows_only
    expected = chains * (ADAPTATION + draws) * PASSES * sequences.length
    if exactly and expected > MOST_ROWS:
        why = f"stopped at the mode, since exact gradients would read {expected:.1g} observations"
        return Piped([at_mode, at_mode], {"stopped": why, "step_size": found.step_size, "noise": found.noise})
    request = Request(model, sequences, tuned, chains=chains, draws=draws, seed=seed)
    drawn = carry_out(Run(request, tuned, CHEAPER if exactly else ""))
    seconds = time.perf_counter() - began
    kept = {name: value[:, :: max(1, value.shape[1] // 50)] for name, value in drawn.coordinates.items()}
    means = natural(model, kept, lambda value: value.mean(axis=1))
    read = bar.rows + _read_by_a_chain(drawn, sequences)
    segments = [at_mode, Segment(drawn.settings["steps"], means, seconds, read, found.buffer, None)]
    return Piped(segments, {name: value for name, value in drawn.settings.items() if name != "versions"})


def _read_by_a_chain(drawn: Chains, sequences: Sequences) -> float:
    """Rows behind the draws of one chain and its warm-up."""
    chosen = drawn.settings
    if "windows" not in chosen:  # passes over everything, as many in a step of the warm-up as in the others
        passes = float(np.mean(drawn.stats["leapfrogs"]))
        return passes * (chosen["warmup"] + chosen["draws"] * chosen["thin"]) * sequences.length
    return float(chosen["steps"] * chosen["windows"] * (2 * chosen["half_width"] + 1 + 2 * chosen["buffer"]))
