"""The default sampler: SGLD with control variates, preconditioned, by the scheme of Leimkuhler and Matthews (F22, F23).

Averaging the noise of two neighbouring steps makes the stationary distribution of a Gaussian target exact for every
stable step size; plain Euler steps come out visibly wrong on the skewed coordinates of rare transitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.data.layout import Partition
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.samplers import SAMPLERS
from longhmm.samplers.contract import Coordinates, Info, Sampler, Start
from longhmm.samplers.mode import Mode, find_mode
from longhmm.target.buffer_length import FixedBuffer
from longhmm.target.buffered import Buffered, FullData, WindowTarget
from longhmm.target.control_variate import ControlVariateTarget, CountControl, known_at
from longhmm.target.coordinates import Arrays, Flat, constrain
from longhmm.target.information import BLOCKS_PER_POINT, score_differences
from longhmm.target.systematic import UnequalSampling, Windows
from longhmm.target.target import Estimator, Target

COUNTS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)  # numbers of windows to choose from
FEWEST, SMALL_SHARE, WIDE = 16, 0.1, 500  # fewer, with less noise, only of so many rows that they are what a step costs
STEP_OVERHEAD = 2000  # what a step costs beside its windows, in observations
NOISE_POINTS = 256  # points at which the noise of the gradient is measured
# In posterior standard deviations. The mean of the most skewed coordinate there is, the logarithm of an exponential
# variable, lies SKEW from its mode; along the common direction of n such coordinates it is SKEW sqrt(n).
SKEW, FAR, EACH_FAR = 0.58, 1.0, 1.0
WARM_UP = 20  # autocorrelation times that chains warm up for

# No step goes further than this along any whitened coordinate, in posterior standard deviations. Even the most skewed
# coordinate, the logarithm of an exponential variable, asks for more only once in ten million draws. But far out in its
# tail explicit steps are unstable: without a limit, one unlucky window in a million throws a chain out for good.
LONGEST_DRIFT = 4.0


class ControlVariateState(NamedTuple):
    """Where the chain is: `offset` is z, `noise` the normal draws of the last step."""

    coordinates: Coordinates
    offset: Any
    noise: Any


@SAMPLERS.register("sgld-cv")
@dataclass(frozen=True)
class ControlVariateSGLD(Sampler):
    """The default sampler; everything it needs is tuned automatically. In whitened coordinates, `theta = theta* + L z`,

        z' = z + h L^T g_hat(theta) + sqrt(2 h) C (xi + xi') / 2

    where `L L^T = H^-1`, g_hat is the control-variate gradient, xi' fresh standard normal noise, xi that of the step
    before, and `C C^T = I - h / (2 - h) V` takes away what the noise of the gradient, `V = L^T Cov(g_hat) L`, adds.

    Args:
        largest_step: upper limit of the step size h.
        noise_share: how much of the stationary variance may come from the gradient's noise before it is compensated.

    Example:
        >>> import longhmm as lh
        >>> lh.ControlVariateSGLD(largest_step=0.1)
        ControlVariateSGLD(largest_step=0.1, noise_share=0.25)

    References: Leimkuhler and Matthews (2013) for the averaged noise; Baker, Fearnhead, Fox and Nemeth (2019) for
    control variates. Differs from both by the noise C, which leaves out what the gradient's own noise adds.
    """

    largest_step: float = 0.25
    noise_share: float = 0.25
    tuned: Tuned | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "SGLD with control variates"
    cites: ClassVar[tuple[str, ...]] = ("leimkuhler2013", "baker2019")
    learned: ClassVar[tuple[str, ...]] = ("tuned",)
    retunes: ClassVar[int] = 3

    @property
    def found(self) -> Tuned:
        if self.tuned is None:
            raise ModelError(f"{self.name} must be tuned before it runs: sample(...) does, or sampler.tune(...).")
        return self.tuned

    @property
    def warmup(self) -> int:
        return int(np.ceil(WARM_UP * ((2 - self.found.step_size) / self.found.step_size)))

    @property
    def spacing(self) -> int:
        """Predicted steps per effective draw."""
        return int(np.ceil((2 - self.found.step_size) / self.found.step_size))

    @property
    def cost(self) -> float:
        return self.found.cost

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """Control variates with what was tuned; all data before that."""
        return FullData() if self.tuned is None else self.tuned

    def tune(self, target: Target, start: Start) -> ControlVariateSGLD:
        found = tune(target.model, target.sequences, start, self.largest_step, self.noise_share)
        return replace(self, tuned=found)

    def starts(self, chains: int, seed: int) -> list[Arrays] | None:
        """Spread out like the posterior itself, so that the agreement of chains means something."""
        flat, rng = Flat.like(self.found.mode), np.random.default_rng([seed, 1])
        centre, factor = flat.ravel_numpy(self.found.mode), np.asarray(self.found.factor, np.float64)
        return [flat.unravel(centre + factor @ rng.normal(size=flat.size)) for _ in range(chains)]

    def init(self, target: ControlVariateTarget, key: Array, u: Coordinates) -> ControlVariateState:
        flat, factor = Flat.like(u), np.asarray(self.found.factor, np.float64)
        offset = np.linalg.solve(factor, flat.ravel_numpy(u) - flat.ravel_numpy(target.centre)).astype(np.float32)
        noise = jax.random.normal(key, offset.shape, offset.dtype)
        return ControlVariateState(_narrow(self.coordinates(offset)), offset, noise)

    def step(
        self, target: ControlVariateTarget, key: Array, state: ControlVariateState, minibatch: Any
    ) -> tuple[ControlVariateState, Info]:
        factor, step_size = (jnp.asarray(each, jnp.float32) for each in (self.found.factor, self.found.step_size))
        spread = jnp.sqrt(2.0 * step_size) * jnp.asarray(self.found.noise_factor, jnp.float32)
        seen = target.estimate(state.coordinates, minibatch)
        asked = step_size * (factor.T @ Flat.like(state.coordinates).ravel(seen.gradient))
        drift = jnp.clip(asked, -LONGEST_DRIFT, LONGEST_DRIFT)
        noise = jax.random.normal(key, state.offset.shape, state.offset.dtype)
        offset = state.offset + drift + spread @ (0.5 * (state.noise + noise))
        stats = {"drift": jnp.sqrt(jnp.sum(drift**2)), "impossible": seen.impossible}  # its length when whitened
        info = Info(seen.gradient, jnp.all(jnp.isfinite(offset)), stats)
        flat = Flat.like(target.centre)
        place = flat.ravel(target.centre).astype(jnp.float32) + factor @ offset
        return ControlVariateState(flat.unravel(place), offset, noise), info

    def record(self, state: ControlVariateState) -> Any:
        """Only the offset: in float32 it is precise to a millionth of a posterior standard deviation."""
        return state.offset

    def coordinates(self, recorded: np.ndarray) -> Arrays:
        """Of whitened offsets `(..., P)` from the centre, in float64."""
        flat, factor = Flat.like(self.found.centre), np.asarray(self.found.factor, np.float64)
        centre = flat.ravel_numpy(_narrow(self.found.centre))
        return flat.unravel(centre + np.asarray(recorded, np.float64) @ factor.T)

    def unsettled(self, target: ControlVariateTarget, recorded: np.ndarray) -> bool:
        return drifted(np.asarray(recorded, np.float64), target.model.n_states)

    def retune(self, target: ControlVariateTarget, recorded: np.ndarray) -> ControlVariateSGLD:
        """With the centre of the control variates moved to where the chains are."""
        centre = self.coordinates(np.asarray(recorded, np.float64).mean(axis=(0, 1)))
        return replace(self, tuned=self.found.about(target.model, target.sequences, centre))

    def halved(self) -> ControlVariateSGLD:
        """With the injected noise matched anew."""
        step, injected = self.found.step_size, np.asarray(self.found.noise_factor, np.float64)
        # C C^T = I - h / (2 - h) V, solved for V.
        noise = (np.eye(len(injected)) - injected @ injected.T) * (2 - step) / step
        narrow = noise_factor(noise, step / 2).astype(np.float32)
        return replace(self, tuned=replace(self.found, noise_factor=narrow, step_size=step / 2))

    def mode(self) -> tuple[Arrays, np.ndarray] | None:
        return self.found.mode, self.found.information

    def describe(self, target: ControlVariateTarget) -> dict[str, Any]:
        found = self.found
        chosen = dict(step_size=found.step_size, gradient_noise=found.noise, windows=found.windows.count)
        chosen |= dict(half_width=found.windows.half_width, buffer=found.buffer, gap=target.source.scheme.spacing)
        chosen |= dict(mode_log_posterior=found.log_posterior, full_passes=found.passes)
        return chosen | ({"recentred": found.recentred} if found.recentred else {})

    def notes(self) -> list[str]:
        below = f"{-self.found.competing:.1f} below in log posterior on a part of the data"
        note = f"another mode is as good: a search from another start ended elsewhere, {below}"
        return [] if np.isnan(self.found.competing) else [note]


# Everything it needs, found without help: mode, information, noise, number of windows, step size ----------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Tuned:
    """What was chosen, and about which centre; `bind` makes control variates of it."""

    mode: Arrays  # its coordinates
    information: np.ndarray  # `(P, P)`, at the mode
    log_posterior: float  # at the mode
    passes: int  # over all data, on the way there
    competing: float  # log posterior, relative to this one, of another mode that is as good; NaN where there is none
    factor: np.ndarray  # L, `(P, P)`, `L L^T = H^-1`
    noise_factor: np.ndarray  # C, `(P, P)`
    step_size: float  # h
    noise: float  # largest eigenvalue of the noise V of the chosen number of windows, in whitened coordinates
    cost: float  # rows that an independent draw costs
    centre: Arrays  # coordinates of the centre of the control variates: the mode, unless it was moved
    slope: Arrays  # exact gradient of the log likelihood at the centre
    counts: CountControl  # the control variate for expected counts there
    recentred: int  # how often the centre was moved
    windows: Windows = field(metadata={"static": True})
    buffer: int = field(metadata={"static": True})

    def bind(self, model: HMM, sequences: Sequences, params: Params) -> ControlVariateTarget:
        """Control variates about the centre; windows are a mixing time apart at the mode, whatever `params` are."""
        plain = _bind_windows(model, sequences, self.mode, self.windows, self.buffer)
        return ControlVariateTarget.of(plain, _narrow(self.centre), _narrow(self.slope), self.counts)

    def about(self, model: HMM, sequences: Sequences, centre: Arrays) -> Tuned:
        """The same with control variates about another centre, which changes their noise and never the target."""
        slope, counts = known_at(model, sequences, centre)
        return replace(self, centre=centre, slope=slope, counts=counts, recentred=self.recentred + 1)


def tune(model: HMM, sequences: Sequences, start: Start, largest_step: float, noise_share: float) -> Tuned:
    """Find the mode, measure curvature and noise there, and choose windows and step size by formula."""
    windows, bar, seed = start.windows, start.bar, start.seed
    how: Any = dict(windows=windows, buffer=start.buffer, init=start.init, seed=seed, bar=bar, near=start.near)
    mode = find_mode(model, sequences, **how)
    bar.phase("measuring the noise of gradients from windows", unit="rows")
    factor = whitening(mode.information)
    slope, counts = known_at(model, sequences, mode.coordinates, mode.seen)
    at = model, sequences, mode.coordinates, mode.windows, mode.buffer
    unequal = None if windows is None else _bind_windows(*at).source.unequal
    residuals, weights = window_spread(model, mode, sequences, factor, counts, unequal, seed)
    n_blocks = Partition(sequences.offsets, mode.windows.core_length).n_blocks
    width = mode.windows.core_length + 2 * mode.buffer
    least = 1 if width >= WIDE and n_blocks >= FEWEST else FEWEST
    choices = [windows.count] if windows else [each for each in COUNTS if least <= each <= n_blocks] or [n_blocks]
    costs = []
    for count in choices:
        # The noise V of a gradient from so many windows, averaged over the posterior (F27).
        missed = np.maximum(1 - count / (n_blocks * weights), 0.0)
        sums = (residuals.T * missed) @ residuals / (NOISE_POINTS * (BLOCKS_PER_POINT - 1))
        noise = n_blocks**2 / count * sums
        largest = float(np.linalg.eigvalsh(noise)[-1])
        # The largest h whose share `h V / (2 - h)` of gradient noise in the stationary variance stays small.
        share = noise_share if windows is not None or count >= FEWEST else min(noise_share, SMALL_SHARE)
        step = float(min(largest_step, 2 * share / (largest + share)))
        costs.append(((STEP_OVERHEAD + 2 * count * width) * (2 - step) / step, count, step, largest, noise))
    cost, count, step, largest, noise = min(costs, key=lambda choice: choice[0])
    return Tuned(
        mode=mode.coordinates, information=mode.information, log_posterior=mode.log_posterior, passes=mode.passes,
        competing=np.nan if mode.competing is None else mode.competing, factor=factor.astype(np.float32),
        noise_factor=noise_factor(noise, step).astype(np.float32), step_size=step, noise=largest, cost=cost,
        centre=mode.coordinates, slope=slope, counts=counts, recentred=0,
        windows=replace(mode.windows, count=count), buffer=mode.buffer,
    )  # fmt: skip


def whitening(information: np.ndarray) -> np.ndarray:
    """L with `L L^T = H^-1`."""
    scale = 1.0 / np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale[None, :])
    return np.asarray((scale[:, None] * vectors) / np.sqrt(values))


def window_spread(
    model: HMM,
    mode: Mode,
    sequences: Sequences,
    factor: np.ndarray,
    counts: CountControl,
    unequal: UnequalSampling | None,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """How windows differ at points spread like the posterior: `(n, P)`, whitened, weighted, less the mean of the point.

    Also weights `(n,)`, one over N times the probability of the block; ones where all are as likely.
    """
    flat, rng = Flat.like(mode.coordinates), np.random.default_rng(seed)
    points = flat.ravel_numpy(mode.coordinates) + rng.normal(size=(NOISE_POINTS, flat.size)) @ factor.T
    at, how = flat.unravel(points), (mode.windows, mode.buffer, counts.elasticity, unequal)
    differences, weights = score_differences(model, mode.coordinates, at, sequences, *how, seed=seed)
    # The spread among blocks at one point; between points the mean moves too, but that is the drift itself.
    whitened = (weights[:, None] * differences @ factor).reshape(NOISE_POINTS, BLOCKS_PER_POINT, flat.size)
    return (whitened - whitened.mean(axis=1, keepdims=True)).reshape(-1, flat.size), weights


def noise_factor(noise: np.ndarray, step: float) -> np.ndarray:
    """C with `C C^T = I - h / (2 - h) V`, the noise that is left to inject."""
    values, vectors = np.linalg.eigh(np.eye(len(noise)) - step / (2 - step) * noise)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def drifted(offsets: np.ndarray, n_states: int) -> bool:
    """Whether all chains, `(chain, draw, P)` whitened, have gone the same way from the centre, beyond any skewness.

    In a row of transitions, all but one of `n_states` may never have been seen.
    """
    means = offsets.mean(axis=1)
    together = np.abs(means.mean(axis=0)) > FAR + SKEW * np.sqrt(n_states - 1)
    same_way = np.abs(np.sign(means).sum(axis=0)) == len(means)
    return bool(np.any(together & same_way & (np.abs(means) > EACH_FAR).all(axis=0)))


def _bind_windows(model: HMM, sequences: Sequences, mode: Arrays, windows: Windows, buffer: int) -> WindowTarget:
    return Buffered(windows, FixedBuffer(buffer)).bind(model, sequences, constrain(model, mode))


def _narrow(tree: Params) -> Arrays:
    return {name: np.asarray(value, np.float32) for name, value in tree.items()}
