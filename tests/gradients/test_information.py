"""Differences of window scores: the fused kernel and the reference say the same."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.gradients import estimators, information
from longhmm.gradients.api import unconstrain
from longhmm.gradients.flat import Flat
from longhmm.gradients.schemes import Windows
from longhmm.kernels import native
from longhmm.kernels.backends import REFERENCE


@pytest.mark.skipif(not native.usable(), reason="the fused kernel was not built")
@pytest.mark.parametrize("missing", [False, True])
def test_kernel_and_reference_find_the_same_differences(monkeypatch, missing):
    model = lh.HMM(n_states=3, emission=lh.Gaussian())
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(scale=3.0, size=60), 10) + rng.normal(size=600)
    if missing:
        rows[50:70] = np.nan
    sequences = lh.open_data([rows[:400], rows[400:]])
    model = model.resolve(sequences)
    start = {
        "mean": np.array([[-2.0], [0.0], [2.0]]),
        "covariance": np.ones((3, 1, 1)),
        "transition": np.full((3, 3), 0.1) + 0.7 * np.eye(3),
    }
    centre = unconstrain(model, start)
    flat = Flat.like(centre)
    points = flat.unravel(flat.ravel_numpy(centre) + 0.1 * rng.normal(size=(4, flat.size)))
    share = np.full((3, 3), 0.5)

    def look():
        return information.score_differences(model, centre, points, sequences, Windows(4, 5), 6, share, None, seed=1)

    ours, weights = look()
    monkeypatch.setattr(estimators, "windows_backend", lambda n_states: REFERENCE)
    reference, _ = look()
    assert ours.shape == (4 * information.CELLS_PER_POINT, flat.size) and np.all(weights == 1.0)
    # The kernel reads observations in single precision, as the chains do.
    np.testing.assert_allclose(ours, reference, rtol=0, atol=5e-6)
    assert np.abs(reference).max() > 0.1
