"""The simulated data of Ma, Foti and Fox (2017): each function returns a model and its true parameters.

The paper prints transition matrices whose columns sum to one; here, as everywhere in longhmm, rows do. (The matrix of
`dd` is doubly stochastic, so that row sums would not reveal a forgotten transpose.)
"""

from __future__ import annotations

import numpy as np

from longhmm.model.emissions.gaussian import Gaussian
from longhmm.model.emissions.log_normal import LogNormal
from longhmm.model.hmm import HMM

Named = tuple[HMM, dict[str, np.ndarray]]


def dd() -> Named:
    """Diagonally dominant: 8 states far apart, each kept for a thousand steps on average, visited in a circle."""
    # Printed: from column j to row i, that is from state j + 1 to state j, and from the first to the last.
    transition = 0.999 * np.eye(8) + 0.001 * np.roll(np.eye(8), -1, axis=1)
    means = [(0, 20), (20, 0), (-30, -30), (30, -30), (-20, 0), (0, -20), (30, 30), (-30, 30)]
    return _gaussian(transition, means, variance=1.0)


def rc() -> Named:
    """Reversed cycles: 1 -> 2 -> 3 and 5 -> 6 -> 7 go round in opposite senses, joined by the bridges 4 and 8."""
    return _gaussian(_reversed_cycles(), _CYCLE_MEANS, variance=20.0)


def rc_hard() -> Named:
    """Reversed cycles with noise so wide that a single observation hardly tells the look-alikes apart."""
    return _gaussian(_reversed_cycles(), _CYCLE_MEANS, variance=400.0)


def lognormal() -> Named:
    """Two log-normal states that alternate, wide enough to overlap."""
    model = HMM(n_states=2, emission=LogNormal())
    params = {
        "transition": np.array([[0.1, 0.9], [0.9, 0.1]]),
        "loc": np.array([0.0, 4.0]),
        "scale": np.array([2.0, 2.0]),
    }
    return model, params


_CYCLE_MEANS = [(-50, 0), (30, -30), (30, 30), (-100, -10), (40, -40), (-65, 0), (40, 40), (100, 10)]


def _reversed_cycles() -> np.ndarray:
    """From state to state, as the printed matrix has it (its text has the second cycle the other way round)."""
    steps = {
        (1, 1): 0.01, (1, 2): 0.99, (2, 2): 0.01, (2, 3): 0.99, (3, 1): 0.85, (3, 4): 0.15, (4, 5): 1.0,
        (5, 5): 0.01, (5, 6): 0.99, (6, 6): 0.01, (6, 7): 0.99, (7, 5): 0.85, (7, 8): 0.15, (8, 1): 1.0,
    }  # fmt: skip
    transition = np.zeros((8, 8))
    for (state, following), probability in steps.items():
        transition[state - 1, following - 1] = probability
    return transition


def _gaussian(transition: np.ndarray, means: list[tuple[int, int]], variance: float) -> Named:
    model = HMM(n_states=len(means), emission=Gaussian(dim=2))
    params = {
        "transition": transition,
        "mean": np.array(means, np.float64),
        "covariance": np.tile(variance * np.eye(2), (len(means), 1, 1)),
    }
    return model, params
