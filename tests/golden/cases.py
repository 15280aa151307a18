"""Models, parameters and data of the golden results, through the public interface only.

Data come from `RandomState`, whose streams NumPy has frozen, and are rounded: they are the same on every machine and
in every version. Parameters are close to what made the data, not at a mode, so that no gradient vanishes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist

import longhmm as lh

Arrays = dict[str, np.ndarray]
Emit = Callable[[np.random.RandomState, np.ndarray], np.ndarray]


class Case(NamedTuple):
    """One model at one set of parameters, with its data.

    Attributes:
        model: as a user writes it, priors not resolved.
        params: natural parameters.
        data: an array, or a list of arrays (many sequences).
        options: what `open_data` is told beside the data.
        on_disk: whether the same data are read from .npy files, too, to the same results.
        gaussian_line: True for Gaussians in one dimension, whose spread has coordinates of its own choice.
    """

    model: lh.HMM
    params: Arrays
    data: Any
    options: Mapping[str, Any] = {}
    on_disk: bool = False
    gaussian_line: bool = False


def gaussian_line(mean: Any, sd: Any) -> Arrays:
    """Parameters of a Gaussian in one dimension: this and the next function alone know how they are laid out."""
    mean, sd = np.asarray(mean, np.float64), np.asarray(sd, np.float64)
    return {"mean": mean, "sd": sd}


def mean_and_sd(params: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `gaussian_line`."""
    return params["mean"], params["sd"]


def chain(rng: np.random.RandomState, transition: np.ndarray, length: int) -> np.ndarray:
    """A path of a Markov chain that begins uniformly."""
    ends = np.cumsum(transition, axis=1)
    states = np.empty(length, np.int64)
    state = int(rng.random_sample() * len(transition))
    for t, uniform in enumerate(rng.random_sample(length)):
        states[t] = state
        state = min(int(np.searchsorted(ends[state], uniform, side="right")), len(transition) - 1)
    return states


def normal(mean: Any, sd: Any) -> Emit:
    mean, sd = np.asarray(mean, np.float64), np.asarray(sd, np.float64)

    def emit(rng: np.random.RandomState, states: np.ndarray) -> np.ndarray:
        return mean[states] + sd[states] * rng.standard_normal((len(states), *mean.shape[1:]))

    return emit


def made(seed: int, transition: Any, length: int, emit: Emit) -> tuple[np.ndarray, np.ndarray]:
    """States and observations; numbers are rounded, so that no machine's last digit matters."""
    rng = np.random.RandomState(seed)
    states = chain(rng, np.asarray(transition), length)
    return states, np.round(emit(rng, states), 5)


def staying(n_states: int, stay: float) -> np.ndarray:
    """Stay with this probability, else move to any other state, a little more often to the next one."""
    if n_states == 1:
        return np.ones((1, 1))
    move = np.ones((n_states, n_states)) + 0.5 * np.roll(np.eye(n_states), 1, axis=1)
    np.fill_diagonal(move, 0.0)
    return stay * np.eye(n_states) + (1.0 - stay) * move / move.sum(1, keepdims=True)


def with_gaps(values: np.ndarray, seed: int, share: float, *, whole_rows: bool) -> np.ndarray:
    """The same values with some missing: whole rows, or single numbers."""
    lost = np.random.RandomState(seed).random_sample(len(values) if whole_rows else values.shape) < share
    values = values.copy()
    values[lost] = np.nan
    return values


def cut(values: np.ndarray, lengths: tuple[int, ...]) -> list[np.ndarray]:
    return np.split(values, np.cumsum(lengths)[:-1])


def line() -> Case:
    transition, mean, sd = staying(3, 0.93), [-1.0, 0.3, 2.0], [0.6, 0.5, 0.9]
    _, y = made(1, transition, 3000, normal(mean, sd))
    params = {"transition": staying(3, 0.9), **gaussian_line([-0.9, 0.2, 2.1], [0.7, 0.5, 0.8])}
    model = lh.HMM(3, lh.Gaussian(), transition_prior=lh.Sticky(10.0, 1.0))
    return Case(model, params, y.astype(np.float32), on_disk=True, gaussian_line=True)


def long_memory() -> Case:
    """So sticky and so noisy that a chunk does not forget what came before it within a few hundred rows."""
    transition, mean, sd = staying(3, 0.999), 0.1 * np.arange(3), np.ones(3)
    _, y = made(2, transition, 3000, normal(mean, sd))
    params = {"transition": staying(3, 0.9985), **gaussian_line(0.12 * np.arange(3), 1.02 * sd)}
    return Case(lh.HMM(3, lh.Gaussian()), params, y, gaussian_line=True)


def outliers() -> Case:
    """Values so far out that densities underflow in either precision."""
    _, y = made(3, staying(2, 0.95), 800, normal([0.0, 1.0], [0.3, 0.3]))
    y[[100, 101, 500]] = [40.0, -30.0, 100.0]
    params = {"transition": staying(2, 0.93), **gaussian_line([0.05, 0.9], [0.3, 0.35])}
    return Case(lh.HMM(2, lh.Gaussian()), params, y, gaussian_line=True)


def tied() -> Case:
    """Two levels, each of two states; closed states do not meet."""
    allowed = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]], float)
    transition = 0.85 * np.eye(4) + 0.15 * (allowed - np.eye(4)) / 2
    _, y = made(4, transition, 1200, normal([0.0, 1.0, 0.0, 1.0], [0.4, 0.5, 0.4, 0.5]))
    other = 0.8 * np.eye(4) + 0.2 * (allowed - np.eye(4)) * [0.4, 0.6, 0.6, 0.4]
    params = {"transition": other / other.sum(1, keepdims=True), **gaussian_line([0.05, 1.1], [0.45, 0.5])}
    model = lh.HMM(
        4, lh.Tied(lh.Gaussian(), (0, 1, 0, 1)), transition_prior=2.0 * allowed, initial=[0.4, 0.3, 0.2, 0.1]
    )
    return Case(model, params, y, gaussian_line=True)


def plane() -> Case:
    """A ring in the plane: from each state only on to the next."""
    allowed = np.eye(4) + np.roll(np.eye(4), 1, axis=1)
    mean = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    _, y = made(5, 0.9 * np.eye(4) + 0.1 * (allowed - np.eye(4)), 1500, normal(mean, np.full((4, 2), 0.7)))
    covariance = np.array([[[0.5, s], [s, 0.6]] for s in (0.1, -0.1, 0.2, 0.0)])
    transition = 0.88 * np.eye(4) + 0.12 * (allowed - np.eye(4))
    params = {"transition": transition, "mean": mean + 0.1, "covariance": covariance}
    return Case(lh.HMM(4, lh.Gaussian(dim=2), transition_prior=allowed), params, y.astype(np.float32), on_disk=True)


def plane_in_part() -> Case:
    """Rows observed in part, full covariance, stationary start, two sequences."""
    mean, sd = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([[1.0, 0.5], [0.6, 0.8]])
    _, y = made(6, staying(2, 0.92), 900, normal(mean, sd))
    y = with_gaps(with_gaps(y, 60, 0.15, whole_rows=False), 61, 0.05, whole_rows=True)
    params = {
        "transition": np.array([[0.9, 0.1], [0.13, 0.87]]),
        "mean": mean - 0.1,
        "covariance": np.array([[[1.1, 0.2], [0.2, 0.4]], [[0.5, -0.1], [-0.1, 0.6]]]),
    }
    model = lh.HMM(2, lh.Gaussian(dim=2), initial="stationary")
    return Case(model, params, cut(y, (350, 550)), on_disk=True)


def diagonal() -> Case:
    mean, sd = np.array([[0.0, 1.0, 2.0], [1.5, 0.0, 2.5]]), np.array([[0.8, 0.5, 1.0], [0.6, 0.7, 0.4]])
    _, y = made(7, staying(2, 0.9), 700, normal(mean, sd))
    y = with_gaps(y, 70, 0.1, whole_rows=False)
    params = {"transition": staying(2, 0.88), "mean": mean + 0.05, "variance": 1.2 * sd**2}
    return Case(lh.HMM(2, lh.Gaussian(3, "diagonal")), params, y)


def spherical() -> Case:
    """One row of the transition matrix is known."""
    mean, sd = np.array([[0.0, 0.0], [1.5, 0.5], [0.0, 2.0]]), np.array([[0.5], [0.6], [0.9]]) * np.ones(2)
    transition = staying(3, 0.9)
    _, y = made(8, transition, 900, normal(mean, sd))
    params = {"transition": staying(3, 0.86), "mean": mean + 0.05, "variance": np.array([0.3, 0.4, 0.7])}
    params["transition"][1] = transition[1]
    return Case(lh.HMM(3, lh.Gaussian(2, "spherical"), fixed_rows={1: transition[1]}), params, y)


def poisson() -> Case:
    """Some states known, stationary start."""
    rate = np.array([0.5, 3.0, 9.0])
    states, y = made(9, staying(3, 0.9), 1200, lambda rng, x: rng.poisson(rate[x]))
    known = np.where(np.random.RandomState(90).random_sample(1200) < 0.1, states, -1)
    params = {"transition": staying(3, 0.85), "rate": np.array([0.6, 3.3, 8.0])}
    model = lh.HMM(3, lh.Poisson(), initial="stationary", transition_prior=np.array([2.0, 1.0, 0.5]))
    return Case(model, params, y, {"states": known}, on_disk=True)


def one_state() -> Case:
    _, y = made(10, np.ones((1, 1)), 400, lambda rng, x: rng.poisson(2.5, len(x)))
    return Case(lh.HMM(1, lh.Poisson()), {"transition": np.ones((1, 1)), "rate": np.array([2.2])}, y)


def categorical() -> Case:
    """Ragged sequences, the shortest of one observation; some observations missing."""
    probs = np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6]])

    def emit(rng: np.random.RandomState, states: np.ndarray) -> np.ndarray:
        return (rng.random_sample(len(states))[:, None] > np.cumsum(probs, 1)[states]).sum(1).clip(0, 3)

    _, y = made(11, staying(2, 0.9), 1100, emit)
    lengths = (1, 400, 7, 2, 89, 600, 1)
    lost = [part == 1 for part in cut(np.random.RandomState(110).randint(0, 12, 1100), lengths)]
    params = {"transition": staying(2, 0.87), "probs": 0.9 * probs + 0.1 / 4}
    return Case(lh.HMM(2, lh.Categorical(4)), params, cut(y, lengths), {"mask": lost}, on_disk=True)


def student_t() -> Case:
    """Missing values; one array cut into sequences by their lengths."""
    loc, scale, df = np.array([0.0, 1.5]), np.array([0.4, 0.6]), np.array([4.0, 12.0])
    _, y = made(12, staying(2, 0.96), 1500, lambda rng, x: loc[x] + scale[x] * rng.standard_t(df[x]))
    params = {"transition": staying(2, 0.95), "df": df + 0.5, "loc": loc + 0.05, "scale": 1.1 * scale}
    lengths = {"lengths": [500, 30, 970]}
    return Case(lh.HMM(2, lh.StudentT()), params, with_gaps(y, 120, 0.03, whole_rows=True), lengths, on_disk=True)


def gamma() -> Case:
    concentration, rate = np.array([[1.5, 3.0], [6.0, 2.0]]), np.array([[1.0, 0.5], [3.0, 2.0]])
    emit: Emit = lambda rng, x: 1e-3 + rng.gamma(concentration[x], 1 / rate[x])  # noqa: E731
    _, y = made(13, staying(2, 0.9), 700, emit)
    params = {"transition": staying(2, 0.92), "concentration": 1.1 * concentration, "rate": 1.05 * rate}
    return Case(lh.HMM(2, lh.Gamma(2)), params, y)


def log_normal() -> Case:
    loc, scale = np.array([-1.0, 0.0, 1.0]), np.array([0.4, 0.3, 0.5])
    emit: Emit = lambda rng, x: 1e-3 + np.exp(loc[x] + scale[x] * rng.standard_normal(len(x)))  # noqa: E731
    _, y = made(14, staying(3, 0.9), 900, emit)
    params = {"transition": staying(3, 0.88), "loc": loc + 0.05, "scale": 1.1 * scale}
    return Case(lh.HMM(3, lh.LogNormal()), params, y)


def von_mises() -> Case:
    loc, concentration = np.array([-0.5, 1.2]), np.array([3.0, 8.0])
    _, y = made(15, staying(2, 0.93), 800, lambda rng, x: rng.vonmises(loc[x], concentration[x]))
    params = {"transition": staying(2, 0.9), "loc": loc + 0.1, "concentration": 0.9 * concentration}
    return Case(lh.HMM(2, lh.VonMises()), params, y)


def negative_binomial() -> Case:
    mean, concentration = np.array([2.0, 9.0]), np.array([1.5, 6.0])
    emit: Emit = lambda rng, x: rng.poisson(rng.gamma(concentration[x], (mean / concentration)[x]))  # noqa: E731
    _, y = made(16, staying(2, 0.92), 800, emit)
    params = {"transition": staying(2, 0.9), "mean": 1.1 * mean, "concentration": 0.9 * concentration}
    return Case(lh.HMM(2, lh.NegativeBinomial()), params, y)


def mixture() -> Case:
    weights, means = np.array([[0.3, 0.7], [0.5, 0.5]]), np.array([[-2.0, 0.0], [1.0, 3.0]])
    scales = np.array([[0.5, 0.4], [0.6, 0.3]])

    def emit(rng: np.random.RandomState, states: np.ndarray) -> np.ndarray:
        component = (rng.random_sample(len(states)) > weights[states, 0]).astype(int)
        return means[states, component] + scales[states, component] * rng.standard_normal(len(states))

    _, y = made(17, staying(2, 0.9), 900, emit)
    params = {
        "transition": staying(2, 0.87),
        "weights": 0.8 * weights + 0.1,
        "means": means + 0.1,
        "scales": 1.1 * scales,
    }
    return Case(lh.HMM(2, lh.GaussianMixture(2)), params, y)


def bernoulli() -> Case:
    """Vectors of zeros and ones, some entries hidden by a mask."""
    probs = np.array([[0.1, 0.5, 0.8], [0.6, 0.3, 0.95]])
    _, y = made(18, staying(2, 0.92), 800, lambda rng, x: 1 * (rng.random_sample((len(x), 3)) < probs[x]))
    mask = np.random.RandomState(180).random_sample((800, 3)) < 0.08
    params = {"transition": staying(2, 0.9), "probs": 0.9 * probs + 0.03}
    return Case(lh.HMM(2, lh.Bernoulli(3)), params, y, {"mask": mask})


def laplace() -> Case:
    """A distribution that only NumPyro knows, with one constant."""
    loc = np.array([-4.0, -2.0, 0.0, 2.0, 4.0])
    _, y = made(19, staying(5, 0.9), 700, lambda rng, x: rng.laplace(loc[x], 0.7))
    emission = lh.Emission(dist.Laplace, loc=dist.Normal(0.0, 5.0), scale=0.7)
    params = {"transition": staying(5, 0.88), "loc": loc + 0.1, "scale": np.full(5, 0.7)}
    return Case(lh.HMM(5, emission), params, y)


MAKERS = (
    line, long_memory, outliers, tied, plane, plane_in_part, diagonal, spherical, poisson, one_state, categorical,
    student_t, gamma, log_normal, von_mises, negative_binomial, mixture, bernoulli, laplace,
)  # fmt: skip
CASES: dict[str, Callable[[], Case]] = {maker.__name__: maker for maker in MAKERS}
