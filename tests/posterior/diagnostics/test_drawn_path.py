"""Paths drawn given data and parameters."""

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics.drawn_path import PATHS, DrawnPath
from posterior.fakes import gaussian_model

TRANSITION = np.array([[0.95, 0.05], [0.1, 0.9]])


def drawn(y, separation, seed=0):
    return DrawnPath(gaussian_model(), {"transition": TRANSITION, "mean": [0.0, separation]}, open_data(y), seed=seed)


def test_paths_begin_with_the_one_that_was_drawn_and_differ_where_data_leave_it_open():
    y = simulate(gaussian_model(), {"transition": TRANSITION, "mean": [0.0, 2.0]}, 500, seed=1)[1]
    path = drawn(y, 2.0, seed=3)
    several = list(path.several())
    assert len(several) == PATHS and np.array_equal(several[0], path.states)
    assert len({each.tobytes() for each in several}) == PATHS
    assert all(np.mean(each != path.states) < 0.2 for each in several)
