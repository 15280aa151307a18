"""Dwell times, occupancies and relaxation times, against simulation-free answers of the matrix exponential."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.linalg import expm

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.posterior.kinetics import dwell_mixture, dwell_times, equilibrium, level_visits, relaxation_times
from longhmm.posterior.posterior import Posterior
from posterior.fakes import chains_of

Q = np.array([[-3.0, 3.0, 0.0], [1.0, -5.0, 4.0], [0.5, 2.0, -2.5]])


def test_equilibrium_is_where_all_leads():
    np.testing.assert_allclose(equilibrium(np.stack([Q, 7 * Q])), np.tile(expm(50 * Q)[0], (2, 1)), rtol=1e-10)


def test_relaxation_times_are_those_of_the_slowest_decays():
    found = relaxation_times(Q[None])[0]
    assert found[0] > found[1]
    gaps = [np.abs(expm(t * Q)[0] - expm(50 * Q)[0]).max() for t in (2.0, 3.0)]
    assert np.log(gaps[0] / gaps[1]) == pytest.approx(1 / found[0], rel=0.01)


def test_dwell_times_of_states_and_of_levels():
    shares = equilibrium(Q[None])
    np.testing.assert_allclose(dwell_times(Q[None], shares, np.arange(3))[0], [1 / 3, 1 / 5, 1 / 2.5], rtol=1e-12)
    levels = np.array([0, 0, 1])
    inside, into = Q[:2, :2], shares[0, 2] * Q[2, :2]
    mean = quad(lambda t: (into / into.sum()) @ expm(t * inside) @ np.ones(2), 0, 50)[0]
    np.testing.assert_allclose(dwell_times(Q[None], shares, levels)[0], [mean, 1 / 2.5], rtol=1e-7)


def posterior_of(model, params):
    """Of draws that are all the same."""
    model = model.resolve(np.linspace(0, 1, 20))
    complete = model.validate({**params, "mean": [0.0, 1.0], "sd": [0.3, 0.3]})
    natural = {name: np.tile(value, (2, 10, *(1,) * value.ndim)) for name, value in complete.items()}
    return Posterior.from_chains(model, chains_of(model, natural), lh.open_data(np.linspace(0, 1, 20)))


def test_the_table():
    moves = lh.Rates("C1 <-> C2 <-> O", dt=0.01)
    model = lh.HMM(3, lh.Tied(lh.Gaussian(), (0, 0, 1)), transitions=moves)
    table = posterior_of(model, {"rates": [2.0, 3.0, 4.0, 8.0]}).kinetics()
    by = table.set_index(["quantity", "of"])["mean"]
    assert by["dwell time", "C1"] == pytest.approx(1 / 2) and by["dwell time", "C2"] == pytest.approx(1 / 7)
    shares = np.array([3.0, 2.0, 1.0]) / 6
    assert by["occupancy", "C1"] == pytest.approx(shares[0]) and by["occupancy", "level 0"] == pytest.approx(5 / 6)
    assert by["dwell time", "level 0"] == pytest.approx((5 / 6) / (shares[1] * 4.0))
    matrix = expm(0.01 * np.array([[-2.0, 2.0, 0.0], [3.0, -7.0, 4.0], [0.0, 8.0, -8.0]]))
    lasting = dwell_mixture(matrix, np.array([0, 0, 1]), 0, np.arange(5000)).sum()
    assert by["seen dwell time", "level 0"] == pytest.approx(0.01 * lasting, rel=1e-6)
    assert by["seen dwell time", "level 1"] == pytest.approx(0.01 / (1 - matrix[2, 2]))
    assert by["seen dwell time", "level 1"] > by["dwell time", "O"]
    assert by["free energy", "O"] == pytest.approx(np.log(3.0))
    assert by["relaxation time", "1"] > by["relaxation time", "2"]
    assert list(table.columns) == ["quantity", "of", "mean", "sd", "low", "high"]


def test_other_transitions_are_refused():
    plain = posterior_of(lh.HMM(2, lh.Gaussian()), {"transition": np.full((2, 2), 0.5)})
    with pytest.raises(ModelError, match="kinetics needs transitions in continuous time"):
        plain.kinetics()


def test_visits_to_a_level_are_a_mixture():
    """Against all powers of the matrix of a path that began outside the level and then entered it."""
    matrix, levels = expm(0.1 * Q), np.array([0, 0, 1])
    found = dwell_mixture(matrix, levels, 0, np.arange(6))
    assert found.shape == (2, 6) and abs(found[0, 5]) > abs(found[1, 5])
    entered = matrix[2, :2] / matrix[2, :2].sum()
    powers = [entered @ np.linalg.matrix_power(matrix[:2, :2], n) @ np.ones(2) for n in range(6)]
    np.testing.assert_allclose(found.sum(axis=0), powers, rtol=1e-12)
    np.testing.assert_allclose(
        dwell_mixture(matrix, levels, 1, np.arange(4)), [matrix[2, 2] ** np.arange(4)], rtol=1e-12
    )
    three = dwell_mixture(matrix, np.array([0, 1, 2]), 1, np.array([0, 3]))
    np.testing.assert_allclose(three, [[1.0, matrix[1, 1] ** 3]], rtol=1e-12)


def test_visits_to_levels_are_joined():
    states, sequence = [0, 1, 2, 1, 0, 2, 0, 2, 1], [0, 0, 0, 0, 0, 0, 1, 1, 1]
    lengths = np.array([4, 1, 3, 2, 5, 1, 2, 6, 3])
    events = pd.DataFrame({"sequence": sequence, "state": states, "start": 0, "end": lengths})
    found = level_visits(events, np.array([0, 0, 1]))
    assert found["level"].tolist() == [1, 0, 1] and found["length"].tolist() == [3, 7, 6]
