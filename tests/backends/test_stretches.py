"""Log likelihoods of stretches: each given all rows before it, together those of all data."""

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.backends.stretches import Stretches
from longhmm.data.sequences import open_data

MODEL = lh.HMM(2, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 5.0)))
PARAMS = MODEL.validate({"transition": [[0.95, 0.05], [0.1, 0.9]], "mean": [-1.0, 1.0]})


@pytest.mark.parametrize(("length", "count"), [(1, 5), (7, 3), (1000, 10), (5000, 7)])
def test_stretches_end_where_the_data_up_to_there_do(length, count):
    values = np.random.default_rng(0).normal(size=length)
    stretches = Stretches(MODEL, open_data(values), count)
    found = stretches.log_likelihoods(PARAMS)
    assert len(found) == min(count, length) and stretches.seen == length and np.all(found < 0)
    assert found.sum() == pytest.approx(lh.log_likelihood(MODEL, PARAMS, values), rel=1e-11)
    if length % count == 0:
        first = values[: length // count]
        assert found[0] == pytest.approx(lh.log_likelihood(MODEL, PARAMS, first), rel=1e-11)


def test_many_sequences_and_missing_rows():
    rng = np.random.default_rng(1)
    values = [rng.normal(size=n) for n in (3, 400, 1, 96)]
    values[1][10:20] = np.nan
    stretches = Stretches(MODEL, open_data(values), 5)
    found = stretches.log_likelihoods(PARAMS)
    assert found.sum() == pytest.approx(lh.log_likelihood(MODEL, PARAMS, values), rel=1e-11)
    assert stretches.seen == 490
