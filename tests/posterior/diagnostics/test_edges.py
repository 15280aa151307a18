"""What does not fit lies where states change, and the response of the instrument is named."""

import numpy as np

import longhmm as lh
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.edges import at_changes

MOVES = np.array([[0.9, 0.1], [0.2, 0.8]])
LEVELS = {"transition": MOVES, "mean": np.array([10.0, 13.0]), "sd": np.array([1.0, 0.6])}


def test_large_residuals_at_changes_name_the_response_of_the_instrument() -> None:
    truth = {**LEVELS, "mean": np.array([0.0, 12.0]), "sd": np.ones(2), "transition": [[0.98, 0.02], [0.02, 0.98]]}
    rounded = lh.HMM(2, lh.Gaussian(response=lh.StepResponse([0.3, 0.8, 1.0])))
    _, y = lh.simulate(rounded, truth, 20_000, seed=4)
    path = DrawnPath(lh.HMM(2, lh.Gaussian()).resolve(y), {**truth, "sd": np.full(2, 1.5)}, lh.open_data(y))
    away = (y[:, 0] - truth["mean"][path.states]) / 1.5
    said = at_changes(path, away, np.arange(len(y)))
    assert said is not None and "near changes of state" in said
    option = said.partition("--response ")[2].split(", since")[0]
    np.testing.assert_allclose([float(each) for each in option.split(",")], [0.3, 0.8, 1.0], atol=0.04)
    sharp = lh.simulate(lh.HMM(2, lh.Gaussian()), truth, 20_000, seed=4)[1]
    path = DrawnPath(lh.HMM(2, lh.Gaussian()).resolve(sharp), truth, lh.open_data(sharp))
    assert at_changes(path, sharp[:, 0] - truth["mean"][path.states], np.arange(len(sharp))) is None
