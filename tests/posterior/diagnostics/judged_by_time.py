"""Data whose levels or rates change, judged by time."""

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.levels_by_time import judge_by_time
from longhmm.posterior.diagnostics.observations import residuals
from longhmm.posterior.diagnostics.transitions_by_time import judge_transitions
from posterior.fakes import gaussian_model

MODEL = gaussian_model()
MOVES = {"transition": np.array([[0.95, 0.05], [0.1, 0.9]])}
PARAMS = {**MOVES, "mean": np.array([0.0, 4.0])}


def judged(data, model=MODEL, params=PARAMS, **options):
    """Reasons of both checks, and their numbers."""
    sequences, details = open_data(data, **options), {}
    path = DrawnPath(model, params, sequences)
    left = residuals(model, params, sequences, path=path)
    levels = judge_by_time(path, None if left is None else left.given_state, details)
    return levels, judge_transitions(path, details), details
