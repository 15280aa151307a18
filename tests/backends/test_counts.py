"""Counts that are looked up: the same answers as from log probabilities of every row."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.backends import native
from longhmm.backends.counts import CountLowering
from longhmm.backends.read import Reader
from longhmm.data.sequences import open_data

TRANSITION = [[0.8, 0.2], [0.3, 0.7]]
SPREAD = {"mean": [1.0, 4.0], "concentration": [3.0, 5.0]}
own = lh.Emission(dist.NegativeBinomial2, mean=dist.Exponential(0.2), concentration=dist.LogNormal(0.0, 1.0))
CASES: dict[str, tuple[lh.Emission, dict[str, Any]]] = {
    "negative-binomial": (lh.NegativeBinomial(), SPREAD),
    "tied": (lh.Tied(lh.NegativeBinomial(), (0, 0)), {name: value[:1] for name, value in SPREAD.items()}),
    "own": (own, SPREAD),
}

pytestmark = pytest.mark.skipif(not native.usable(), reason="only the C++ kernel looks counts up")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=[pytest.mark.slow] if name != "negative-binomial" and form != "array" else [])
        for name in CASES
        for form in ("array", "path", "missing")
    ],
)
@pytest.mark.slow
def test_counts_that_are_looked_up(name: str, form: str, tmp_path: Any) -> None:
    emission, params = CASES[name]
    params = {"transition": TRANSITION, **params}
    model = lh.HMM(2, emission)
    data: Any = np.array(lh.simulate(model, params, 400, seed=2)[1])
    model = model.resolve(data)
    if form == "missing":
        data = np.where(np.arange(400)[:, None] % 7 == 3, np.nan, data)
    if form == "path":
        np.save(tmp_path / "counts.npy", data)
        data = tmp_path / "counts.npy"
    assert isinstance(Reader(model, open_data(data), table=True).lowering, CountLowering)

    def answers() -> list[Any]:
        gradient = lh.gradient(model, params, data)
        found = [lh.log_likelihood(model, params, data), lh.state_probabilities(model, params, data)]
        return [*found, *(gradient[key] for key in sorted(gradient)), lh.decode(model, params, data)]

    fast = answers()
    with patch.object(native, "available", lambda: False):
        slow = answers()
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6 if np.ndim(one) == 2 else 1e-10, atol=1e-9)


def test_counts_that_are_large_or_few_are_not() -> None:
    model = lh.HMM(2, lh.NegativeBinomial())
    for data in (np.arange(40), np.arange(80) * 1000):
        assert Reader(model, open_data(data), table=True).lowering is None
