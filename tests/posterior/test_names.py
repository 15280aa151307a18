"""Names and units of columns, from the data to tables."""

import numpy as np

from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import open_data


def test_values_that_were_changed_have_a_unit_of_their_own():
    raw = open_data(np.exp(np.random.default_rng(0).normal(size=50)))
    raw.unit = "pA"
    assert Preprocessing(log=True).apply(raw).unit == "log pA"
    assert Preprocessing().apply(raw).unit == "pA"
    assert Preprocessing(normalise=True).measured(raw).apply(raw).unit == "sd"
