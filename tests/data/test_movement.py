"""Steps and angles from coordinates, as they were published beside them."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import DataError
from recordings import RECORDINGS

HAGGIS = RECORDINGS / "regression" / "haggis.csv"


@pytest.mark.skipif(not HAGGIS.exists(), reason="the data are not at hand")
def test_they_are_those_of_the_published_animals() -> None:
    table = np.genfromtxt(HAGGIS, delimiter=",", names=True)
    for animal in np.unique(table["ID"]):
        own = table[table["ID"] == animal]
        found = lh.steps_and_angles(own["x"], own["y"])
        np.testing.assert_allclose(found[:, 0], own["step"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.exp(1j * found[:, 1]), np.exp(1j * own["angle"]), rtol=1e-4, atol=1e-4)


def test_a_missing_place_leaves_gaps() -> None:
    found = lh.steps_and_angles([0.0, 1.0, np.nan, 2.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(found[:, 0], [1.0, np.nan, np.nan, 1.0, 1.0, np.nan])
    np.testing.assert_allclose(found[:, 1], [np.nan, np.nan, np.nan, np.nan, np.pi / 2, np.nan])
    with pytest.raises(DataError, match="coordinates of one length"):
        lh.steps_and_angles([1.0], [1.0, 2.0])
