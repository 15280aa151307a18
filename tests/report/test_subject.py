"""Recordings packed for a page: small however long, with missing values, many states and features."""

import json

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.report import subject as pack
from longhmm.report.subject import Scan
from report.reading import unpacked


def test_twenty_million_samples_stay_small():
    length, states = 20_000_000, 8
    rng = np.random.default_rng(0)
    values = rng.standard_normal(length, np.float32)
    data = open_data(values)
    path = np.repeat(rng.integers(0, states, length // 16, dtype=np.uint8), 16)
    found = Scan(path, np.broadcast_to(np.full(states, 255 // states, np.uint8), (length, states)))
    levels = np.arange(states, dtype=float)[:, None]
    scales = pack.ranges(data, levels)
    stored = pack.pack_recording(data, found, levels, rate=1e5, unit="pA")
    assert len(json.dumps(stored)) < 15_000_000  # drawings and tables need one or two million more
    stretch = stored["stretch"]
    assert stretch["step"] == 32 and not stored["visits"]["complete"]
    low = scales[0].low + unpacked(stretch["features"][0]["low"]) / 65534 * (scales[0].high - scales[0].low)
    np.testing.assert_allclose(low, values.reshape(-1, 32).min(axis=1), atol=2e-4)
    masks = unpacked(stretch["masks"][0])
    by_hand = np.bitwise_or.reduce(1 << path[: 32 * 1000].reshape(-1, stretch["mask_step"]).astype(np.uint8), axis=1)
    np.testing.assert_array_equal(masks[: len(by_hand)], by_hand)


def test_missing_values_have_a_code_of_their_own():
    data = open_data(np.array([1.0, np.nan, 3.0, 2.0]))
    stretch = pack.pack_stretch(data, None, pack.ranges(data, np.zeros((1, 1))), 0, 4, 100)
    assert unpacked(stretch["features"][0]["low"]).tolist() == [0, 65535, 65534, 32767]
    assert unpacked(stretch["features"][0]["high"]).tolist() == [0, 0, 65534, 32767]


def test_many_states_features_and_sequences_are_packed():
    rng = np.random.default_rng(0)
    data = open_data([rng.normal(size=(30, 6)), rng.normal(size=(20, 6))])
    path = rng.integers(0, 11, 50).astype(np.uint8)
    found = Scan(path, np.eye(11, dtype=np.uint8)[path] * 255)
    levels = rng.normal(size=(11, 6))
    stored = pack.pack_recording(data, found, levels, rate=None, unit="")
    assert len(stored["features"]) == len(stored["stretch"]["features"]) == 6 and stored["ends"] == [30]
    low, high = (unpacked(each) for each in stored["stretch"]["masks"])
    np.testing.assert_array_equal(low.astype(int) | high.astype(int) << 8, 1 << path.astype(int))
    assert 30 in unpacked(stored["visits"]["start"])
    np.testing.assert_allclose(found.occupancy, np.bincount(path, minlength=11) / 50)
