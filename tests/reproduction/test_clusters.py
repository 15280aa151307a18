"""k-means finds groups that are far apart, however unequal."""

import numpy as np

from longhmm_reproduction import models
from longhmm_reproduction.clusters import k_means_start
from longhmm_reproduction.scoring import best_assignment


def test_groups_far_apart_are_found():
    truth = models.dd()[1]
    rng = np.random.default_rng(0)
    states = rng.choice(8, size=1500, p=np.array([1, 1, 1, 1, 1, 5, 5, 5]) / 20)
    rows = truth["mean"][states] + rng.normal(size=(1500, 2))
    found = k_means_start(rows, 8, rng)
    order = best_assignment(((truth["mean"][:, None] - found["mean"][None]) ** 2).sum(axis=2))
    # A mean of some 75 rows has a standard error of 0.12.
    np.testing.assert_allclose(found["mean"][order], truth["mean"], atol=0.6)
    assert np.linalg.eigvalsh(found["covariance"]).min() > 0.3
