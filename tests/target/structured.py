"""A model with forbidden transitions, fixed rows and a stationary start, for several tests."""

import numpy as np

from target.references import normal_model


def random_transition(n_states: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(n_states) * 2, size=n_states)


PRIOR = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, 1.0], [1.0, 1.0, 0.0]])
STRUCTURED = normal_model(3, transition_prior=PRIOR, fixed_rows={1: [0.2, 0.7, 0.1]}, initial="stationary")
PARAMS = {"transition": [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.4, 0.6, 0.0]], "loc": [-1.0, 0.3, 2.0]}
