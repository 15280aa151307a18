"""Efficiencies from intensities, and where molecules bleach."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.data.fret import fret_options
from longhmm.data.preprocess import Preprocessing
from longhmm.errors import DataError

GAMMA, LEAKAGE, DIRECT = 1.3, 0.08, 0.05


def recorded(efficiency, photons=1000.0, excited=600.0):
    """Intensities of a donor that passes on a share of its light, as a detector with its faults shows them."""
    donor = photons * (1 - efficiency)
    return np.column_stack([donor, GAMMA * photons * efficiency + LEAKAGE * donor + DIRECT * excited])


def test_efficiencies_are_those_before_the_detector():
    truth = [np.linspace(0.1, 0.9, 30), np.full(20, 0.4)]
    traces = [np.column_stack([recorded(each), np.full(len(each), 600.0)]) for each in truth]
    found = lh.fret(traces, gamma=GAMMA, leakage=LEAKAGE, direct=DIRECT)
    np.testing.assert_allclose(found.rows(0, 50).values[:, 0], np.concatenate(truth), rtol=1e-12)
    assert found.n_sequences == 2 and found.dim == 1 and found.source.names == ("efficiency",)
    plain = lh.fret([each[:, :2] for each in traces])
    assert np.abs(plain.rows(0, 50).values[:, 0] - np.concatenate(truth)).max() > 0.05


def test_columns_are_found_by_name(tmp_path):
    both = recorded(np.full(12, 0.3))
    table = np.column_stack([np.full(12, 600.0), both[:, 1], np.arange(12), both[:, 0]])
    np.savetxt(tmp_path / "a.csv", table, delimiter=",", header="acceptor_direct,acceptor,frame,Donor", comments="")
    found = lh.fret(str(tmp_path / "a.csv"), gamma=GAMMA, leakage=LEAKAGE, direct=DIRECT)
    np.testing.assert_allclose(found.rows(0, 12).values[:, 0], 0.3, rtol=1e-9)


def test_bleached_ends_are_cut():
    rng = np.random.default_rng(3)
    level = np.where(rng.random(200) < 0.5, 0.2, 0.8)
    both = recorded(level)
    both[30] = 0.0  # a blink of one frame ends nothing
    both[120:] = 0.0
    both = both + rng.normal(0, 40, both.shape)
    found = lh.fret([both, recorded(np.full(50, 0.5)), rng.normal(-5, 1, (40, 2))])
    lengths = np.diff(found.offsets)
    assert abs(lengths[0] - 120) <= 2 and lengths[1] == 50 and lengths[2] == 1
    assert np.diff(lh.fret([both], bleached=0.0).offsets).tolist() == [200]


def test_an_acceptor_that_bleaches_is_seen_under_direct_excitation():
    both, excited = recorded(np.full(100, 0.6)), np.full(100, 600.0)
    both[70:] = [1000.0, LEAKAGE * 1000.0]
    excited[70:] = 3.0
    found = lh.fret([np.column_stack([both, excited])], gamma=GAMMA, leakage=LEAKAGE, direct=DIRECT)
    assert found.length == 70
    assert lh.fret([both], gamma=GAMMA, leakage=LEAKAGE).length == 100


def test_missing_and_dark_frames_are_missing():
    both = recorded(np.full(20, 0.5))
    both[4], both[7, 0] = -50.0, np.nan
    observed = lh.fret([both]).rows(0, 20).observed[:, 0]
    assert np.flatnonzero(~observed).tolist() == [4, 7]


def test_efficiencies_stay_as_they_are():
    data = lh.open_data(np.linspace(0, 1, 9))
    assert lh.fret(data) is data


def test_it_is_a_step_of_preprocessing():
    steps = Preprocessing(decimate=2, fret=fret_options("gamma=1.3, leakage=0.08"))
    again = Preprocessing.from_dict(steps.to_dict())
    traces = [recorded(np.linspace(0, 1, 21), excited=0.0), recorded(np.full(8, 0.25), excited=0.0)]
    found = again.apply(traces)
    assert not again.changes_nothing and np.diff(found.offsets).tolist() == [11, 4]
    np.testing.assert_allclose(found.rows(0, 11).values[:, 0], np.linspace(0, 1, 11), atol=1e-6)
    assert fret_options(None) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lh.fret(np.ones((9, 2)), gamma=0.0), "gamma must be a positive number, got 0.0."),
        (lambda: lh.fret(np.ones((9, 2)), leakage=1.5), "leakage must be a share of at least 0 and below 1, got 1.5."),
        (lambda: lh.fret(np.ones((9, 2)), direct=0.1), "direct needs a column 'acceptor_direct'"),
        (lambda: lh.fret(np.ones((9, 4))), "has 4 columns, none called donor and acceptor"),
        (lambda: fret_options("gama=1"), "--fret must be numbers such as gamma=1,leakage=0,direct=0,bleached=0.25"),
        (lambda: fret_options("gamma"), "--fret must be numbers"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(DataError, match=message):
        make()
