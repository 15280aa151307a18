"""Traces of three molecules, for tests of their files."""

import numpy as np
import pytest

LENGTHS = (5, 3, 7)
RNG = np.random.default_rng(1)
TRACES = [np.round(RNG.uniform(100, 900, (n, 2)), 1) for n in LENGTHS]


def is_traces(data, traces=TRACES, rate=None):
    assert np.diff(data.offsets).tolist() == [len(each) for each in traces]
    np.testing.assert_allclose(data.rows(0, data.length).values, np.concatenate(traces))
    assert data.rate == (None if rate is None else pytest.approx(rate))
    assert data.source.names == ("donor", "acceptor")
