"""Data sets with which the verdict is tried: models that are right, and troubles of graded strength.

A case is a name, a strength (None where the model is right) and a function of a random generator that returns a
`Trial`: the model that is fitted, its data, what the parameters really are where that means something, and options of
the fit. Everything is drawn anew for every trial; parameters stay the same.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from scipy.signal import lfilter

import longhmm as lh
from longhmm.samplers.preconditioning import InverseInformation

STAY = [[0.95, 0.05], [0.1, 0.9]]
LEVELS = {"mean": [0.0, 3.0], "sd": [1.0, 1.0]}
LENGTH = 20_000


class Trial(NamedTuple):
    model: lh.HMM
    data: Any
    truth: dict[str, Any]  # natural parameters, as far as they have a true value
    options: dict[str, Any] | None = None  # of `lh.sample`
    spoil: tuple[float, float] | None = None  # shift of all draws in posterior sd, and factor of their sd
    mixed: tuple[dict[str, Any], ...] = ()  # where chains begin, one each, that are then taken together


class Case(NamedTuple):
    name: str
    strength: str | None
    make: Callable[[np.random.Generator], Trial]


def seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 30))


def cycle(n: int, stay: float) -> np.ndarray:
    """States that mostly stay, and otherwise go to any other."""
    return np.full((n, n), (1 - stay) / max(n - 1, 1)) * (1 - np.eye(n)) + stay * np.eye(n)


# --- models that are right -------------------------------------------------------------------------------------------


def right(model: lh.HMM, params: dict[str, Any], length: Any, missing: float, rng: np.random.Generator) -> Trial:
    y = lh.simulate(model, params, length, seed=seed(rng))[1]
    if missing:
        y = np.array(y, np.float32)
        y[rng.random(len(y)) < missing] = np.nan
    # Where an emission has no level by which states are ordered, their numbers mean nothing.
    return Trial(model, y, {} if "probs" in params or "covariance" in params else params)


def right_models() -> Iterator[tuple[str, lh.HMM, dict[str, Any], Any]]:
    eight = {"transition": cycle(8, 0.9), "rate": 3.0 * 1.8 ** np.arange(8)}
    rare = [[0.999, 0.001, 0.0], [0.0005, 0.9985, 0.001], [0.02, 0.02, 0.96]]
    rare_prior = np.where(np.array(rare) > 0, 1.0, 0.0)
    plane = {
        "transition": cycle(4, 0.9),
        "mean": [[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]],
        "covariance": np.tile([[1.0, 0.3], [0.3, 1.0]], (4, 1, 1)),
    }
    marks = np.array([[0.1, 0.2, 0.8, 0.5, 0.9], [0.7, 0.6, 0.1, 0.5, 0.2]])
    symbols = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.3, 0.5]]
    informative = lh.Gamma(concentration=dist.LogNormal(np.log([2.0, 8.0]), 0.1), rate=dist.LogNormal(0.0, 0.1))
    three = {"transition": cycle(3, 0.95), "mean": [0.0, 2.0, 5.0], "sd": [1.0, 0.5, 1.5]}
    heavy = {"transition": STAY, "df": [4.0, 8.0], "loc": [0.0, 4.0], "scale": [1.0, 1.0]}
    binary, marked = lh.HMM(2, lh.Bernoulli(dim=5)), {"transition": STAY, "probs": marks}
    rarely = {"transition": rare, "mean": [0.0, 3.0, 7.0], "sd": [1.0, 1.0, 1.0]}
    shapes = {"transition": STAY, "concentration": [2.0, 8.0], "rate": [1.0, 1.0]}
    one = {"transition": [[1.0]], "mean": [1.0], "sd": [2.0]}
    log_normal = {"transition": STAY, "loc": [0.0, 2.0], "scale": [0.5, 0.6]}
    coded = {"transition": cycle(3, 0.95), "probs": symbols}
    yield "Gaussian, 1 state, T = 300", lh.HMM(1, lh.Gaussian()), one, 300
    yield "Poisson, 2 states, T = 2,000", lh.HMM(2, lh.Poisson()), {"transition": STAY, "rate": [1.0, 6.0]}, 2000
    yield "Gaussian, 3 states, T = 20,000", lh.HMM(3, lh.Gaussian()), three, 20_000
    yield (
        "Gaussian in the plane, 4 states, 20 sequences",
        lh.HMM(4, lh.Gaussian(dim=2)),
        plane,
        list(range(500, 4500, 200)),
    )
    yield "log-normal, 2 states, T = 5,000, 5 % missing", lh.HMM(2, lh.LogNormal()), log_normal, 5000
    yield "Student t, 2 states, T = 10,000", lh.HMM(2, lh.StudentT()), heavy, 10_000
    yield "categories, 3 states, T = 30,000", lh.HMM(3, lh.Categorical(4)), coded, 30_000
    yield "5 binary marks, 2 states, T = 5,000", binary, marked, 5000
    yield "rare state, 3 states, T = 50,000", lh.HMM(3, lh.Gaussian(), transition_prior=rare_prior), rarely, 50_000
    yield "Gamma, 2 states, T = 3,000, informative priors", lh.HMM(2, informative), shapes, 3000
    yield "Poisson, 8 states, T = 100,000", lh.HMM(8, lh.Poisson()), eight, 100_000
    yield "Gaussian, 2 states, T = 1,000,000", lh.HMM(2, lh.Gaussian()), {"transition": STAY, **LEVELS}, 1_000_000


def right_cases() -> Iterator[Case]:
    for name, *given in right_models():
        yield Case(name, None, partial(right, *given, 0.05 if "missing" in name else 0.0))


# --- troubles --------------------------------------------------------------------------------------------------------


def path(rng: np.random.Generator, length: int = LENGTH, transition: Any = STAY) -> np.ndarray:
    model = lh.HMM(len(transition), lh.Poisson())
    return lh.simulate(model, {"transition": transition, "rate": np.ones(len(transition))}, length, seed=seed(rng))[0]


def gaussian(values: np.ndarray, n_states: int = 2, truth: dict[str, Any] | None = None, **options: Any) -> Trial:
    known = {"transition": STAY, **LEVELS} if truth is None else truth
    return Trial(lh.HMM(n_states, lh.Gaussian()), values.astype(np.float32), known, options)


def steps(states: np.ndarray) -> np.ndarray:
    return np.asarray(LEVELS["mean"])[states]


def correlated_noise(rho: float, rng: np.random.Generator) -> Trial:
    noise = lfilter([np.sqrt(1 - rho**2)], [1, -rho], rng.normal(size=LENGTH + 100))[100:]
    return gaussian(steps(path(rng)) + noise)


def drift(size: float, rng: np.random.Generator) -> Trial:
    return gaussian(steps(path(rng)) + rng.normal(size=LENGTH) + size * np.linspace(-0.5, 0.5, LENGTH))


def dwell_times(shape: float, rng: np.random.Generator) -> Trial:
    """Negative binomial visits; the smaller the shape, the longer the tails, and 1 is geometric."""
    means, states = np.array([20.0, 10.0]), []
    while sum(map(len, states)) < LENGTH:
        state = len(states) % 2
        length = 1 + rng.negative_binomial(shape, shape / (shape + means[state] - 1))
        states.append(np.full(length, state))
    return gaussian(steps(np.concatenate(states)[:LENGTH]) + rng.normal(size=LENGTH))


def shared_level(ratio: float, rng: np.random.Generator) -> Trial:
    """Two kinetic states on the upper level, one of them left `ratio` times as slowly."""
    slow = 0.2 / ratio
    moves = [[0.95, 0.025, 0.025], [0.2, 0.8, 0.0], [slow, 0.0, 1 - slow]]
    return gaussian(steps(np.minimum(path(rng, transition=moves), 1)) + rng.normal(size=LENGTH), truth=LEVELS)


def state_too_few(distance: float, rng: np.random.Generator) -> Trial:
    """Of three states two are nearly alike. What is said of the first, and how often the two are left, has a truth."""
    states, unknown = path(rng, transition=cycle(3, 0.95)), np.nan
    known = {"transition": [[0.95, 0.05], [0.025, 0.975]], "mean": [0.0, unknown], "sd": [1.0, unknown]}
    return gaussian(np.array([0.0, 4.0, 4.0 + distance])[states] + rng.normal(size=LENGTH), truth=known)


def state_too_many(extra: int, rng: np.random.Generator) -> Trial:
    """Not wrong, but without numbers of states that mean anything."""
    return gaussian(steps(path(rng)) + rng.normal(size=LENGTH), n_states=2 + extra, truth={})


def heavy_tails(df: float, rng: np.random.Generator) -> Trial:
    return gaussian(steps(path(rng)) + rng.standard_t(df, LENGTH) * np.sqrt((df - 2) / df))


def outliers(share: float, rng: np.random.Generator) -> Trial:
    hit = rng.random(LENGTH) < share
    return gaussian(steps(path(rng)) + rng.normal(size=LENGTH) + hit * rng.choice([-8.0, 8.0], LENGTH))


def wrong_family(shape: float, rng: np.random.Generator) -> Trial:
    """Gamma noise, the more skewed the smaller its shape."""
    noise = (rng.gamma(shape, size=LENGTH) - shape) / np.sqrt(shape)
    return gaussian(steps(path(rng)) + noise)


def change_point(factor: float, rng: np.random.Generator) -> Trial:
    """From the middle on states are left so much more often."""
    leave = np.array([0.05, 0.1]) / np.sqrt(factor)
    halves = [np.array([[1 - a, a], [b, 1 - b]]) for a, b in (leave, leave * factor)]
    states = np.concatenate([path(rng, LENGTH // 2, half) for half in halves])
    return gaussian(steps(states) + rng.normal(size=LENGTH), truth=LEVELS)


def unequal_sequences(spread: float, rng: np.random.Generator) -> Trial:
    trial = gaussian(steps(path(rng)) + rng.normal(size=LENGTH) + np.repeat(spread * rng.normal(size=20), LENGTH // 20))
    return trial._replace(data=np.split(trial.data, 20))


def filtered_steps(width: int, rng: np.random.Generator) -> Trial:
    """A detector that averages the level, not the noise, over so many samples."""
    level = np.convolve(steps(path(rng, LENGTH + width - 1)), np.full(width, 1 / width), "valid")
    return gaussian(level + 0.5 * rng.normal(size=LENGTH), truth={"transition": STAY, "mean": LEVELS["mean"]})


def quantised(step: float, rng: np.random.Generator) -> Trial:
    return gaussian(step * np.round((steps(path(rng)) + rng.normal(size=LENGTH)) / step))


def saturated(share: float, rng: np.random.Generator) -> Trial:
    """The largest values are cut off, a share of all."""
    y = steps(path(rng)) + rng.normal(size=LENGTH)
    return gaussian(np.minimum(y, np.quantile(y, 1 - share)))


def spoiled(shift: float, factor: float, rng: np.random.Generator) -> Trial:
    return gaussian(steps(path(rng)) + rng.normal(size=LENGTH))._replace(spoil=(shift, factor))


def patient(values: np.ndarray, level: float, thin: int, **options: Any) -> Trial:
    """Chains that begin at the truth and are so long that they agree: what is left is bias, if any."""
    truth = {"transition": STAY, "mean": [0.0, level], "sd": [1.0, 1.0]}
    start = {name: np.array(value) for name, value in truth.items()}
    return gaussian(values, truth=truth, init=start, warmup=200, thin=thin, **options)


def large_step(size: float, thin: int, rng: np.random.Generator) -> Trial:
    sampler = lh.SGLD(step_size=size, preconditioner=InverseInformation())
    return patient(steps(path(rng)) + rng.normal(size=LENGTH), 3.0, thin, sampler=sampler)


def short_buffer(half_width: int, rng: np.random.Generator) -> Trial:
    """Windows without a buffer; the shorter, the more of their rows do not know the state before them."""
    sampler = lh.SGLD(step_size=0.02, preconditioner=InverseInformation(), noise_correction=True)
    windows = lh.Windows(half_width, 200 // half_width)
    y = np.array([0.0, 2.0])[path(rng)] + rng.normal(size=LENGTH)
    return patient(y, 2.0, 100, sampler=sampler, buffer=lh.FixedBuffer(0), windows=windows)


def two_modes(rng: np.random.Generator) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Four levels for a model of three states, and their mirror image: either the two lowest are taken for one state,
    or the two highest, with equal right."""
    y = np.array([-4.5, -1.5, 1.5, 4.5])[path(rng, LENGTH // 2, cycle(4, 0.95))] + rng.normal(size=LENGTH // 2)
    lower = {"transition": cycle(3, 0.95), "mean": [-3.0, 1.5, 4.5], "sd": [1.8, 1.0, 1.0]}
    upper = {"transition": cycle(3, 0.95), "mean": [-4.5, -1.5, 3.0], "sd": [1.0, 1.0, 1.8]}
    return np.stack([y, -y]), [{name: np.array(value) for name, value in one.items()} for one in (lower, upper)]


def chains_apart(others: int, rng: np.random.Generator) -> Trial:
    """Chains that stay where they begin, so many of four in another mode than the rest."""
    y, (lower, upper) = two_modes(rng)
    starts = [upper] * others + [lower] * (4 - others)
    trial = gaussian(y, 3, truth={}, sampler=lh.Gibbs(), draws=500, warmup=100)
    return trial._replace(data=list(trial.data), mixed=tuple(starts))


def as_good(rng: np.random.Generator) -> Trial:
    trial = gaussian(two_modes(rng)[0], 3, truth={})
    return trial._replace(data=list(trial.data))


TROUBLES: dict[str, tuple[Callable[..., Trial], dict[str, tuple[Any, ...]]]] = {
    "noise is autoregressive, coefficient": (correlated_noise, {str(r): (r,) for r in (0.05, 0.1, 0.2, 0.4)}),
    "levels drift, in sd from end to end": (drift, {str(s): (s,) for s in (0.2, 0.5, 1.0, 2.0)}),
    "negative binomial dwell times, shape": (dwell_times, {str(s): (s,) for s in (0.7, 1.5, 3.0, 12.0)}),
    "two kinetic states on a level, ratio of rates": (shared_level, {str(r): (r,) for r in (2.0, 5.0, 20.0)}),
    "one state too few, distance in sd": (state_too_few, {str(d): (d,) for d in (0.5, 1.0, 2.0, 4.0)}),
    "states too many": (state_too_many, {str(n): (n,) for n in (1, 2)}),
    "heavy tails, degrees of freedom": (heavy_tails, {str(d): (d,) for d in (30.0, 10.0, 4.0)}),
    "outliers of 8 sd, share": (outliers, {str(s): (s,) for s in (0.0005, 0.002, 0.01)}),
    "Gamma noise, shape": (wrong_family, {str(s): (s,) for s in (50.0, 10.0, 2.0)}),
    "rates change in the middle, by a factor": (change_point, {str(f): (f,) for f in (1.2, 1.5, 2.0, 4.0)}),
    "levels differ by sequence, sd": (unequal_sequences, {str(s): (s,) for s in (0.05, 0.2, 0.5)}),
    "steps filtered over so many samples": (filtered_steps, {str(w): (w,) for w in (2, 3, 5)}),
    "values rounded to, in sd": (quantised, {str(s): (s,) for s in (0.5, 1.0, 2.0)}),
    "largest values cut off, share": (saturated, {str(s): (s,) for s in (0.001, 0.01, 0.05)}),
    "draws shifted, in posterior sd": (spoiled, {str(s): (s, 1.0) for s in (0.1, 0.25, 0.5, 1.0)}),
    "draws too narrow, factor": (spoiled, {str(f): (0.0, f) for f in (0.9, 0.75, 0.5)}),
    "step size of SGLD without correction": (
        large_step,
        {str(s): (s, thin) for s, thin in ((0.01, 100), (0.05, 50), (0.3, 20))},
    ),
    "windows without a buffer, half width": (short_buffer, {str(w): (w,) for w in (50, 10, 2)}),
    "chains in another mode than the rest, of four": (chains_apart, {str(n): (n,) for n in (1, 2)}),
    "another mode as good": (as_good, {"exactly": ()}),
}


def trouble_cases() -> Iterator[Case]:
    for name, (make, grades) in TROUBLES.items():
        for strength, arguments in grades.items():
            yield Case(name, strength, partial(make, *arguments))
