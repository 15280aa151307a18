"""Transitions by time and by sequence: silent where they stay, plain where they change."""

import numpy as np
import pytest

from longhmm.model.simulate import simulate
from posterior.diagnostics.judged_by_time import judged
from posterior.fakes import gaussian_model

MODEL = gaussian_model()
MOVES = {"transition": np.array([[0.95, 0.05], [0.1, 0.9]])}
PARAMS = {**MOVES, "mean": np.array([0.0, 4.0])}
N = 12_000


def values(seed=0, length=N, transition=None):
    params = PARAMS if transition is None else {**PARAMS, "transition": transition}
    return simulate(MODEL, params, length, seed=seed)[1][:, 0].astype(float)


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_rates_that_change_are_seen_with_the_time(share):
    first = int(share * N)
    slow, fast = ([[1 - a, a], [b, 1 - b]] for a, b in ((0.03, 0.06), (0.09, 0.18)))
    y = np.concatenate([values(1, first, slow), values(2, N - first, fast)])
    levels, (reason,), details = judged(y)
    assert levels == [] and details["change"] > 0.3
    assert reason.startswith(("transition[0, 1] changes: it is 0.0", "transition[1, 0] changes: it is 0.0"))
    assert "where the model has 0." in reason and "fit the two parts apart" in reason
    place = int(reason.partition("about row ")[2].split(" ")[0].replace(",", ""))
    assert place == pytest.approx(first, abs=800)


def test_rates_that_differ_between_sequences_are_seen():
    leave = [[0.02, 0.1], [0.1, 0.1]]
    y = [values(seed, 1500, [[1 - a, a], [b, 1 - b]]) for seed, (a, b) in enumerate(leave * 4)]
    _, (reason,), details = judged(y)
    assert "transition[0, 1] differs from sequence to sequence" in reason and "one by one" in reason
    assert details["change_of"] == "transition[0, 1] by sequence"


def test_dwell_times_that_are_not_geometric_do_not_pass_for_a_change():
    rng = np.random.default_rng(4)
    visits = [np.full(1 + int(rng.choice([3, 100], p=[0.7, 0.3]) * rng.exponential()), k % 2) for k in range(800)]
    path = np.concatenate(visits)[:N]
    leave = 1 / np.array([np.mean([len(each) for each in visits[k::2]]) for k in (0, 1)])
    params = {**PARAMS, "transition": np.array([[1 - leave[0], leave[0]], [leave[1], 1 - leave[1]]])}
    assert judged(PARAMS["mean"][path] + rng.normal(size=len(path)), params=params)[1] == []
