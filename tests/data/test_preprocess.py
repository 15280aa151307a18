"""Preprocessing: each step against plain NumPy, on one sequence and on many, in memory and lazily."""

import numpy as np
import pytest

from longhmm.data import preprocess
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import open_data
from longhmm.errors import DataError

RNG = np.random.default_rng(0)
VALUES = np.exp(RNG.normal(size=(1003, 2))).astype(np.float32)


def whole(sequences):
    return np.asarray(sequences.rows(0, sequences.length).values)


@pytest.mark.parametrize("lazily", [False, True])
def test_steps_agree_with_numpy(lazily, monkeypatch):
    if lazily:
        monkeypatch.setattr(preprocess, "IN_MEMORY", 0)
    kept = VALUES[::7].astype(np.float64)
    for steps, wanted in [
        (Preprocessing(decimate=7), kept),
        (Preprocessing(decimate=7, log=True), np.log(kept)),
        (Preprocessing(log=True), np.log(VALUES.astype(np.float64))),
    ]:
        found = steps.apply(VALUES)
        assert found.in_memory is not lazily
        np.testing.assert_allclose(whole(found), wanted, rtol=2e-6, atol=1e-6)
        np.testing.assert_array_equal(found.rows(20, 45).values, whole(found)[20:45])
    measured = Preprocessing(log=True, normalise=True).measured(open_data(VALUES))
    found = whole(measured.apply(VALUES))
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(found.std(axis=0), 1.0, rtol=1e-5)


def test_decimation_takes_samples_and_does_not_average():
    step = np.where(np.arange(100) < 50, 0.0, 100.0)
    assert set(np.unique(whole(Preprocessing(decimate=3).apply(step)))) == {0.0, 100.0}


def test_sequences_are_prepared_one_by_one():
    parts = [np.arange(10.0), np.arange(100.0, 104.0)]
    found = Preprocessing(decimate=3).apply(parts)
    np.testing.assert_array_equal(found.offsets, [0, 4, 6])
    np.testing.assert_array_equal(whole(found)[:, 0], [0, 3, 6, 9, 100, 103])


def test_a_drift_is_removed_around_the_middle_and_events_are_not():
    time = np.arange(20_000)
    drift = 0.002 * (time - 9_999.5)
    blocked = (time % 500) < 40
    clean = np.where(blocked, 50.0, 130.0)
    found = whole(Preprocessing(detrend=True).apply(clean + drift + RNG.normal(0, 1, 20_000)))[:, 0]
    slope = np.polyfit(time, found - clean, 1)[0]
    assert abs(slope) < 0.02 * 0.002
    assert found[~blocked].mean() == pytest.approx(130.0, abs=0.1)
    assert found[blocked].mean() == pytest.approx(50.0, abs=0.1)


def test_levels_go_back_to_the_units_of_the_file():
    steps = Preprocessing(log=True, normalise=True).measured(open_data(VALUES))
    prepared = whole(steps.apply(VALUES)).astype(np.float64)
    np.testing.assert_allclose(steps.in_file_units(prepared[:, 1], feature=1), VALUES[:, 1], rtol=1e-5)


def test_the_scale_of_the_first_recording_is_kept_for_the_next():
    steps = Preprocessing(normalise=True).measured(open_data(VALUES))
    again = Preprocessing.from_dict(steps.to_dict())
    assert again == steps
    other = 3.0 * VALUES
    np.testing.assert_allclose(whole(again.apply(other)), (other - steps.centre) / steps.scale, rtol=1e-5)
    with pytest.raises(DataError, match="has 1 features, but it is to be normalised like one with 2"):
        again.apply(VALUES[:, :1])


def test_the_rate_is_divided_by_decimation(tmp_path):
    np.savez(tmp_path / "a.npz", y=np.arange(50.0), rate=1000.0)
    assert Preprocessing(decimate=4).apply(tmp_path / "a.npz").rate == 250.0


def test_missing_values_stay_missing():
    values = VALUES.copy()
    values[10, 0] = np.nan
    steps = Preprocessing(log=True, detrend=True, normalise=True).measured(open_data(values))
    found = whole(steps.apply(values))
    assert np.isnan(found[10, 0])
    assert np.isnan(found).sum() == 1


def test_bad_input_is_refused():
    values = VALUES.copy()
    values[12, 1] = -3.0
    with pytest.raises(DataError, match="row 12 of the array is -3, which has no logarithm"):
        Preprocessing(log=True).apply(values)
    with pytest.raises(DataError, match="decimate must be a whole number of at least 1, got 0"):
        Preprocessing(decimate=0)
    with pytest.raises(DataError, match="mask, known states or covariates"):
        Preprocessing(decimate=2).apply(open_data(values, mask=np.zeros(len(values), bool)))
    with pytest.raises(DataError, match="got also"):
        Preprocessing.from_dict({"smooth": 3})
