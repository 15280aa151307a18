"""Information scaled up from a part of the data, against that of all of them."""

from __future__ import annotations

import numpy as np

import longhmm as lh
from longhmm.target import curvature
from longhmm.target.flat import Flat


def test_the_slope_of_a_part_does_not_pass_for_curvature(monkeypatch):
    """Two states look so much alike that the data hardly tell some transitions from none."""
    params = {
        "transition": np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]]),
        "mean": np.array([-1.0, 0.0, 1.0]),
        "sd": np.ones(3),
    }
    model = lh.HMM(3, lh.Gaussian())
    y = np.asarray(lh.simulate(model, params, 200_000, seed=4)[1])
    sequences = lh.open_data(y)
    model = model.resolve(sequences)
    near = 0.998 * params["transition"] + 0.002 / 3
    coordinates = lh.unconstrain(model, {**params, "transition": near})
    size = Flat.like(coordinates).size
    whole = curvature.information_by_differences(model, coordinates, sequences)
    monkeypatch.setattr(curvature, "WORK", 2 * size * 20_000.0)
    found = curvature.information_by_differences(model, coordinates, sequences)
    monkeypatch.setattr(curvature, "_bend", lambda *given: 0.0)
    plain = curvature.information_by_differences(model, coordinates, sequences)
    scale = np.sqrt(np.diag(whole))
    error, without = (np.abs(each - whole) / np.outer(scale, scale) for each in (found, plain))
    assert error.max() < 0.2, error.max()
    assert without.max() > 2 * error.max(), (without.max(), error.max())
