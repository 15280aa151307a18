"""Dwell times of three states, their chances and hazards by SciPy, for several tests."""

import numpy as np
import pytest
from scipy import stats

import longhmm as lh

MEAN, SHAPE = np.array([3.0, 6.5, 2.2]), np.array([4.0, 0.7, 1.0])
EXITS = np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9]])
FREE = np.array([[0.05, 0.3, 0.6], [0.4, 0.1, 0.2], [0.9, 0.5, 0.25]])
TIMES = np.array([[1.5, 2.0, 9.0], [2.5, 3.0, 4.0], [1.2, 6.0, 7.5]])  # of phases that may repeat themselves
ENDS = np.array([[0.6, 0.1], [0.2, 0.5], [0.3, 0.9]])  # chances that a visit ends after them
EMISSION = {"mean": np.array([0.0, 1.0, 2.5]), "sd": np.array([0.8, 0.6, 0.7])}
OWN = {
    "negative-binomial": np.concatenate([MEAN, SHAPE]),
    "gamma": np.concatenate([MEAN, SHAPE]),
    "free": FREE.ravel(),
    "phase-type": np.concatenate([TIMES, ENDS], axis=1).ravel(),
}
LAST = 3  # phases, where dwell times may last longer
VALUES = np.random.default_rng(4).normal(1.0, 1.2, 14)
KINDS = pytest.mark.parametrize("kind", ["negative-binomial", "gamma", "free", "phase-type"])


def model(kind, phases=LAST, *, n_states=3, initial="uniform", **options):
    moves = lh.Durations(kind, phases=phases, **options)
    return lh.HMM(n_states, lh.Gaussian(), transitions=moves, initial=initial).resolve(np.linspace(-1, 4, 50))


def params(kind):
    return {"durations": np.concatenate([OWN[kind], EXITS.ravel()]), **EMISSION}


def of_hazards(hazards, n):
    """`P(T = d)`, d = 1 .. n, where the last hazard goes on."""
    every = np.concatenate([hazards, np.repeat(hazards[:, -1:], max(n - hazards.shape[1], 0), axis=1)], axis=1)[:, :n]
    return every * np.concatenate([np.ones((len(every), 1)), np.cumprod(1 - every, axis=1)[:, :-1]], axis=1)


def of_phases(times, ends, n):
    """`P(T = d)`, d = 1 .. n, of one state: what is left in each phase, row by row."""
    ends, left, found = [*ends, 1.0], np.eye(len(times))[0], []
    for _ in range(n):
        done = left / times
        found.append(done @ ends)
        left = left - done + np.append(0.0, (done * (1 - np.array(ends)))[:-1])
    return np.array(found)


def lasting(kind, n):
    """`P(T = d)`, d = 1 .. n, as they are with `LAST` phases."""
    if kind == "phase-type":
        return np.stack([of_phases(*each, n) for each in zip(TIMES, ENDS, strict=True)])
    return of_hazards(hazards_of(kind, LAST), n)


def chances_of(kind, n):
    if kind == "negative-binomial":
        return stats.nbinom.pmf(np.arange(n)[None], SHAPE[:, None], (SHAPE / (SHAPE + MEAN - 1))[:, None])
    ends = stats.gamma.cdf(np.arange(n + 1)[None], SHAPE[:, None], scale=(MEAN / SHAPE)[:, None])
    return np.diff(ends, axis=1)


def hazards_of(kind, phases):
    if kind == "free":
        return FREE
    chances = chances_of(kind, phases)
    return chances / (1.0 - np.cumsum(chances, axis=1) + chances)
