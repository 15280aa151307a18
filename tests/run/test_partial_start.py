"""Starts of which a part is given."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.run.partial_start import whole_init


def test_a_start_may_leave_parameters_out():
    values = np.concatenate([np.zeros(50), np.full(50, 9.0)]) + np.random.default_rng(0).normal(size=100)
    data = open_data(values)
    model = lh.HMM(2, lh.Gaussian()).resolve(data)
    found = whole_init(model, data, {"mean": [1.0, 8.0]})
    assert list(found["mean"]) == [1.0, 8.0]
    model.validate(found)  # complete
    with pytest.raises(ModelError, match=r"init must hold parameters of the model, .*, got 'means'\."):
        whole_init(model, data, {"means": [1.0, 8.0]})
