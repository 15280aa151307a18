"""Chains on windows, looked at from time to time: where they are, how long it took, how much data they read.

Repetitions are the chains of one driver: they start from different points, have random numbers of their own, and share
one compiled program. Compiling is left out of the times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.run.driver import Driver, RunState
from longhmm.samplers.contract import Sampler
from longhmm.target.buffer_length import RUN_LENGTH, RUNS, BufferEstimate, FixedBuffer, LyapunovBuffer
from longhmm.target.buffered import IID, Buffered, FullData, StartDistribution, stationary_start
from longhmm.target.coordinates import constrain, unconstrain
from longhmm.target.systematic import Windows

Params = dict[str, np.ndarray]


@dataclass(frozen=True)
class Method:
    """One way of getting gradients: `kind` is "windows", "iid" or "batch"; `buffer` is None for the Lyapunov rule."""

    kind: str = "windows"
    buffer: int | None = None
    start: StartDistribution = stationary_start


class Segment(NamedTuple):
    """What happened up to one look.

    Attributes:
        params: by name, `(chain, *shape)`: natural parameters averaged over the steps since the look before.
        seconds: since the beginning, without compiling; all chains ran side by side.
        touched: observations read by each chain so far, for the choice of buffers too.
        buffer, exponent: in use since the look before; the exponent is None where it was not measured.
    """

    steps: int
    params: Params
    seconds: float
    touched: float
    buffer: int
    exponent: float | None


class Watched:
    """Chains of one method on one data set."""

    def __init__(
        self, model: HMM, sequences: Sequences, sampler: Sampler, method: Method, windows: Windows, seed: int
    ) -> None:
        self.model, self.sequences, self.sampler = model, sequences, sampler
        self.method, self.windows, self.seed = method, windows, seed
        self.seconds, self.touched = 0.0, 0.0

    def go(self, starts: Sequence[Params], steps: int, looks: int, draws: int = 10) -> list[Segment]:
        """Run from natural parameters; the average of a segment is taken over `draws` equally spaced steps."""
        at = [unconstrain(self.model, start) for start in starts]
        found = self._measure(starts[0])
        driver, run = self._driver(found, starts[0]), None
        segments: list[Segment] = []
        # Looks are closer together at first, when much happens.
        edges = np.unique(np.round(steps * (np.arange(looks + 1) / looks) ** 2).astype(int))
        for begin, end in pairwise(edges):
            if run is None:
                run = driver.start(at)
                self._warm(driver, run)
            thin = max(1, int(end - begin) // draws)
            count = max(1, int(end - begin) // thin)
            began = time.perf_counter()
            driver.advance(run, count, thin)
            self.seconds += time.perf_counter() - began
            self.touched += count * thin * self._per_step(found)
            params = self._average(run)
            segments.append(Segment(run.steps, params, self.seconds, self.touched, found.length, found.gap))
            again = self._measure({name: value[0] for name, value in params.items()})
            # A little shorter is not worth another program.
            if again.length > found.length or again.length < found.length / 2:
                driver = self._driver(again, {name: value[0] for name, value in params.items()})
                self._warm(driver, run)
                found = again
            found = found._replace(gap=again.gap)
        return segments

    def _measure(self, params: Mapping[str, Any]) -> BufferEstimate:
        method = self.method
        if method.kind != "windows" or method.buffer is not None:
            return BufferEstimate(method.buffer or 0, None, method.buffer or 0, False)
        began = time.perf_counter()
        found = LyapunovBuffer().estimate(self.model, params, self.sequences)
        if self.seconds:  # the first measurement compiles
            self.seconds += time.perf_counter() - began
        self.touched += min(RUNS * RUN_LENGTH, self.sequences.length)
        return found

    def _driver(self, found: BufferEstimate, params: Mapping[str, Any]) -> Driver:
        method = self.method
        policy: Any
        if method.kind == "windows":
            policy = Buffered(self.windows, FixedBuffer(found.length), method.start)
        else:
            policy = IID(self.windows) if method.kind == "iid" else FullData()
        return Driver(self.sampler, policy.bind(self.model, self.sequences, _inside(params)), self.seed)

    def _per_step(self, found: BufferEstimate) -> float:
        if self.method.kind == "batch":
            return float(self.sequences.length)
        return float(self.windows.count * (self.windows.core_length + 2 * found.length))

    def _warm(self, driver: Driver, run: RunState) -> None:
        """Compile, on a copy of the states that is thrown away."""
        driver.advance(RunState(list(run.states), run.steps, alive=list(run.alive)), 1, 1)

    def _average(self, run: RunState) -> Params:
        (draws, _), run.recorded = run.joined(), []
        return natural(self.model, draws, lambda value: value.mean(axis=1))


def natural(model: HMM, draws: Mapping[str, np.ndarray], reduce: Callable[[np.ndarray], np.ndarray]) -> Params:
    """Natural parameters of draws of coordinates, `(chain, draw, ...)`, reduced by a function of such arrays."""
    chains, count = next(iter(draws.values())).shape[:2]
    rows = []
    for chain in range(chains):
        for draw in range(count):
            at = {name: np.asarray(value[chain, draw], np.float64) for name, value in draws.items()}
            rows.append(constrain(model, at))
    stacked = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return {name: reduce(value.reshape(chains, count, *value.shape[1:])) for name, value in stacked.items()}


def late_average(segments: Sequence[Segment]) -> Params:
    """Averages over the second half of a run, `(chain, *shape)`, every step with the same weight."""
    steps = np.array([segment.steps for segment in segments])
    lengths = np.diff(steps, prepend=0)
    late = steps > steps[-1] / 2
    weights = lengths[late] / lengths[late].sum()
    chosen = [segment.params for segment, keep in zip(segments, late, strict=True) if keep]
    return jax.tree.map(lambda *each: sum(w * value for w, value in zip(weights, each, strict=True)), *chosen)


def _inside(params: Mapping[str, Any]) -> Params:
    """Off the boundary, where a chain that starts from counts may have zeros; the initial law stays the model's own."""
    transition = np.maximum(np.asarray(params["transition"], np.float64), 1e-8)
    kept = {name: np.asarray(value) for name, value in params.items() if name != "initial"}
    return {**kept, "transition": transition / transition.sum(axis=1, keepdims=True)}
