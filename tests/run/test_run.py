"""When an exact sampler takes over, by formula."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.run import run
from longhmm.run.run import cheaper


@pytest.mark.parametrize(
    ("length", "cost", "draws", "exact"),
    [
        (600, 3e5, 3, True),  # adapted in a moment
        (600, 3e5, 1000, True),
        (20_000, 5e4, 1000, False),  # windows cost less for each draw
        (300_000, 6e7, 1000, True),  # windows that say so little that all data are the better bargain
        (300_000, 6e7, 3, True),
        (300_000, 2e6, 1000, True),
        (300_000, 2e6, 50, False),  # the adaptation alone would cost more than all draws
        (5_000_000, 6e6, 50, False),
        (5_000_000, 2.2e7, 50, False),
    ],
)
def test_the_exact_sampler_is_chosen_where_all_of_it_costs_less(length, cost, draws, exact):
    assert cheaper(length, cost, draws) is exact


@pytest.mark.parametrize(("most", "thin"), [(np.inf, 16), (1e4, 1)])
def test_an_exact_sampler_that_has_read_long_does_not_go_on_for_draws_less_alike(monkeypatch, most, thin):
    monkeypatch.setattr(run, "WANTED_SHARE", 100.0)  # more than there can be
    monkeypatch.setattr(run, "LONG", most)
    y = np.random.default_rng(0).normal(size=200)
    posterior = lh.sample(lh.HMM(1, lh.Gaussian()), y, draws=10, seed=1, progress=False)
    assert posterior.settings["sampler"] == "NUTS" and posterior.n_draws == 10
    assert posterior.settings["thin"] == thin
