"""Everything the default sampler needs, found without help: mode, information, noise, number of windows, step size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from longhmm.data.layout import Cells
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.progress import Bar
from longhmm.run.mode import Mode, find_mode
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD, Tuned
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.control_variate import ControlVariateTarget, CountControl, count_control
from longhmm.target.coordinates import Flat, constrain, log_prior_gradient
from longhmm.target.estimators import Buffered, WindowTarget
from longhmm.target.information import BLOCKS_PER_POINT, score_differences
from longhmm.target.systematic import Importance, UnequalSampling, Windows

COUNTS = (16, 32, 64, 128, 256, 512, 1024)  # numbers of windows to choose from
STEP_OVERHEAD = 2000  # what a step costs beside its windows, in observations
NOISE_POINTS = 256  # points at which the noise of the gradient is measured
CHEAPER = "for data of this length it costs less per draw than windows"
# Full gradients that an exact sampler spends on each effective draw of a chain, and on its adaptation, about.
EXACT_GRADIENTS, EXACT_ADAPTATION = 4, 1000
A_MOMENT = 5e7  # rows
WARM_UP = 20  # autocorrelation times that chains on windows warm up for


class Tuning(NamedTuple):
    """What was chosen, and why.

    Attributes:
        estimator: the control-variate estimator with whitening, noise and step size, ready to run.
        mode: the mode it is centred at.
        step_size: h.
        autocorrelation: predicted steps per effective draw, `(2 - h) / h`.
        noise: largest eigenvalue of the noise V of the chosen number of windows, in whitened coordinates.
        exact: why an exact full-data sampler is better here, in words; empty where it is not.
    """

    estimator: Tuned
    mode: Mode
    step_size: float
    autocorrelation: float
    noise: float
    exact: str


def tune(
    sampler: ControlVariateSGLD,
    model: HMM,
    sequences: Sequences,
    *,
    windows: Windows | None = None,
    buffer: LyapunovBuffer | FixedBuffer | None = None,
    init: Mapping[str, Any] | None = None,
    draws: int = 1000,
    seed: int = 0,
    bar: Bar | None = None,
) -> Tuning:
    """Climb to the mode, measure curvature and noise there, and choose windows and step size by formula."""
    bar = bar or Bar(False)
    mode = find_mode(model, sequences, windows=windows, buffer=buffer, init=init, seed=seed, bar=bar)
    bar.phase("measuring the noise of gradients from windows", unit="rows")
    factor = whitening(mode.information)
    rare = count_control(model, constrain(model, mode.coordinates), sequences)
    plain = None if windows is None else _bind_windows(model, sequences, mode, windows.count)
    spread = window_spread(model, mode, sequences, factor, rare, None if plain is None else plain.source.unequal, seed)
    n_cells = Cells(sequences.offsets, mode.windows.core_length).n_cells
    counts = [windows.count] if windows is not None else [count for count in COUNTS if count <= n_cells] or [n_cells]
    width = mode.windows.core_length + 2 * mode.buffer
    choices = []
    for count in counts:
        noise = spread.noise(count, n_cells)
        largest = float(np.linalg.eigvalsh(noise)[-1])
        step = step_size(sampler, largest)
        cost = (STEP_OVERHEAD + 2 * count * width) * (2 - step) / step
        choices.append((cost, count, step, largest, noise))
    cost, count, step, largest, noise = min(choices, key=lambda choice: choice[0])
    if plain is None:
        plain = _bind_windows(model, sequences, mode, count)
    estimator = _bind(model, mode, plain, factor, noise_factor(noise, step), step, rare)
    exact = CHEAPER if cheaper_exactly(sequences.length, cost, draws) else ""
    return Tuning(estimator, mode, step, (2 - step) / step, largest, exact)


def cheaper_exactly(length: int, cost: float, draws: int) -> bool:
    """Whether the exact sampler costs less for `draws` draws of a chain, each of which costs windows `cost` rows.

    Its adaptation counts where it is not done in a moment: it may cost more than all draws from windows together.
    """
    gradient = STEP_OVERHEAD + length
    adaptation = EXACT_ADAPTATION * gradient
    whole = adaptation + EXACT_GRADIENTS * gradient * draws < (WARM_UP + draws) * cost
    return EXACT_GRADIENTS * gradient < cost and (whole or adaptation < A_MOMENT)


def step_size(sampler: ControlVariateSGLD, noise: float) -> float:
    """The largest h whose share `h V / (2 - h)` of gradient noise in the stationary variance stays small."""
    share = sampler.noise_share
    return float(min(sampler.largest_step, 2 * share / (noise + share)))


def whitening(information: np.ndarray) -> np.ndarray:
    """L with `L L^T = H^-1`."""
    scale = 1.0 / np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale[None, :])
    return (scale[:, None] * vectors) / np.sqrt(values)


class Spread(NamedTuple):
    """How control-variate windows differ from one another at points of the posterior.

    Attributes:
        residuals: `(n, P)`, whitened weighted differences less their mean at the point.
        weights: `(n,)`, one over N times the probability of the cell; ones where all are as likely.
    """

    residuals: np.ndarray
    weights: np.ndarray

    def noise(self, count: int, n_cells: int) -> np.ndarray:
        """`(P, P)`, the noise V of a gradient from `count` windows, averaged over the posterior (F27)."""
        missed = np.maximum(1 - count / (n_cells * self.weights), 0.0)
        sums = (self.residuals.T * missed) @ self.residuals / (NOISE_POINTS * (BLOCKS_PER_POINT - 1))
        return n_cells**2 / count * sums


def window_spread(
    model: HMM,
    mode: Mode,
    sequences: Sequences,
    factor: np.ndarray,
    rare: CountControl,
    unequal: UnequalSampling | None,
    seed: int,
) -> Spread:
    """Measure, at points spread like the posterior, how windows differ."""
    flat = Flat.like(mode.coordinates)
    rng = np.random.default_rng(seed)
    centre = flat.ravel_numpy(mode.coordinates)
    points = centre + rng.normal(size=(NOISE_POINTS, flat.size)) @ factor.T
    at, how = flat.unravel(points), (mode.windows, mode.buffer, rare.elasticity, unequal)
    differences, weights = score_differences(model, mode.coordinates, at, sequences, *how, seed=seed)
    # The spread among cells at one point; between points the mean moves too, but that is the drift itself.
    whitened = (weights[:, None] * differences @ factor).reshape(NOISE_POINTS, BLOCKS_PER_POINT, flat.size)
    residuals = (whitened - whitened.mean(axis=1, keepdims=True)).reshape(-1, flat.size)
    return Spread(residuals, weights)


def noise_factor(noise: np.ndarray, step: float) -> np.ndarray:
    """C with `C C^T = I - h / (2 - h) V`, the noise that is left to inject."""
    values, vectors = np.linalg.eigh(np.eye(len(noise)) - step / (2 - step) * noise)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def _bind_windows(model: HMM, sequences: Sequences, mode: Mode, count: int) -> WindowTarget:
    shape = replace(mode.windows, count=count)
    return Buffered(shape, FixedBuffer(mode.buffer)).bind(model, sequences, constrain(model, mode.coordinates))


def _bind(
    model: HMM,
    mode: Mode,
    plain: WindowTarget,
    factor: np.ndarray,
    injected: np.ndarray,
    step: float,
    rare: CountControl,
) -> Tuned:
    prior = log_prior_gradient(model, mode.coordinates)
    exact = {name: mode.gradient[name] - slope for name, slope in prior.items()}
    narrow = {name: value.astype(np.float32) for name, value in exact.items()}
    centre = {name: value.astype(np.float32) for name, value in mode.coordinates.items()}
    control = ControlVariateTarget(plain, centre, narrow, rare)
    return Tuned.of(control, factor.astype(np.float32), injected.astype(np.float32), np.float32(step))


def to_arrays(tuning: Tuning) -> dict[str, np.ndarray]:
    """A tuning as arrays for a checkpoint: a resumed run takes it as it was instead of tuning again."""
    estimator, mode = tuning.estimator, tuning.mode
    numbers = [mode.windows.half_width, estimator.plain.source.windows.count, mode.buffer, mode.passes]
    floats = [
        tuning.step_size,
        tuning.noise,
        mode.log_posterior,
        mode.decrement,
        np.nan if mode.rival is None else mode.rival,
    ]
    found = {"factor": estimator.factor, "noise_factor": estimator.noise_factor, "information": mode.information}
    rare = estimator.rare
    if rare is not None:
        found |= {"rare_counts": rare.counts, "rare_share": rare.elasticity}
    found |= {"numbers": np.array(numbers), "floats": np.array(floats), "exact": _bytes(tuning.exact)}
    if mode.windows.proposal is not None:
        found["uniform"] = np.array(mode.windows.proposal.uniform)
    found |= {f"centre_{name}": value for name, value in mode.coordinates.items()}
    found |= {f"slope_{name}": value for name, value in mode.gradient.items()}
    return {f"tuning_{name}": np.asarray(value) for name, value in found.items()}


def from_arrays(model: HMM, sequences: Sequences, arrays: Mapping[str, np.ndarray]) -> Tuning:
    """The inverse of `to_arrays`."""

    def named(prefix: str) -> dict[str, np.ndarray]:
        full = f"tuning_{prefix}"
        return {name.removeprefix(full): value for name, value in arrays.items() if name.startswith(full)}

    half_width, count, buffer, passes = (int(each) for each in arrays["tuning_numbers"])
    step, noise, value, decrement, rival = (float(each) for each in arrays["tuning_floats"])
    uniform = arrays.get("tuning_uniform")
    mode = Mode(
        named("centre_"),
        value,
        named("slope_"),
        arrays["tuning_information"],
        decrement,
        passes,
        None if np.isnan(rival) else rival,
        Windows(half_width, count, Importance(float(uniform)) if uniform is not None else None),
        buffer,
    )
    factors = arrays["tuning_factor"], arrays["tuning_noise_factor"]
    rare = CountControl(arrays["tuning_rare_counts"], arrays["tuning_rare_share"])
    estimator = _bind(model, mode, _bind_windows(model, sequences, mode, count), *factors, step, rare)
    return Tuning(estimator, mode, step, (2 - step) / step, noise, arrays["tuning_exact"].tobytes().decode())


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)
