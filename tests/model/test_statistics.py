"""Numbers that the C++ kernel makes from values: logarithms, cosines and sines against those of SciPy's densities."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import jax
import numpy as np
import pytest
from scipy import special, stats

import longhmm as lh
from longhmm.backends import native
from longhmm.backends.read import Reader
from longhmm.data.sequences import open_data

TRANSITION = np.full((2, 2), 0.5)  # of two states that are alike: rows are independent
POSITIVE = np.concatenate([np.geomspace(5e-324, 1e17, 200), np.geomspace(0.9, 1.1, 41)])
ANGLES = np.concatenate([np.linspace(-np.pi, np.pi, 403), 0.25 * np.pi * np.arange(-4, 5), [1e-300, -1e-9]])

pytestmark = pytest.mark.skipif(not native.usable(), reason="other backends are given these numbers")


def own_log_likelihood(emission: lh.Emission, params: dict[str, list[float]], y: object) -> float:
    model = lh.HMM(2, emission)
    reader = Reader(model.resolve(open_data(y)), open_data(y))
    assert reader.lowering is not None and reader.lowering.terms
    alike = {name: np.tile(np.asarray(value), (2,) + (1,) * (np.ndim(value) - 1)) for name, value in params.items()}
    return lh.log_likelihood(model, {"transition": TRANSITION, **alike}, y)


def test_logarithms_of_all_magnitudes() -> None:
    logs = 1.5 * np.log(POSITIVE) - 1e-10 * POSITIVE  # SciPy's density underflows
    expected = np.sum(logs + 2.5 * np.log(1e-10) - special.gammaln(2.5))
    found = own_log_likelihood(lh.Gamma(), {"concentration": [2.5], "rate": [1e-10]}, POSITIVE)
    assert found == pytest.approx(expected, rel=1e-13)
    single = POSITIVE[POSITIVE > 2e-45].astype(np.float32)
    assert (single < np.finfo(np.float32).tiny).any()
    expected = np.sum(stats.lognorm(40.0).logpdf(single.astype(np.float64)))
    assert own_log_likelihood(lh.LogNormal(), {"loc": [0.0], "scale": [40.0]}, single) == pytest.approx(
        expected, rel=1e-13
    )


def test_cosines_and_sines_of_the_whole_circle(tmp_path: Path) -> None:
    params = {"loc": [0.7], "concentration": [3.0]}
    expected = np.sum(stats.vonmises(3.0, loc=0.7).logpdf(ANGLES))
    np.save(tmp_path / "angles.npy", ANGLES)
    for data in (ANGLES, tmp_path / "angles.npy"):
        assert own_log_likelihood(lh.VonMises(), params, data) == pytest.approx(expected, rel=1e-13)


def test_what_is_masked_is_missing_whatever_its_value() -> None:
    y = np.stack([ANGLES[:400], np.geomspace(0.1, 10.0, 400)], axis=1)
    mask = np.random.default_rng(0).random(y.shape) < 0.3
    emission = lh.Product(angle=lh.VonMises(), size=lh.Gamma())
    params = {"angle_loc": [0.7], "angle_concentration": [3.0], "size_concentration": [2.0], "size_rate": [1.5]}
    logs = np.stack([stats.vonmises(3.0, loc=0.7).logpdf(y[:, 0]), stats.gamma(2.0, scale=1 / 1.5).logpdf(y[:, 1])], 1)
    found = own_log_likelihood(emission, params, open_data(y, mask=mask))
    assert found == pytest.approx(logs[~mask].sum(), rel=1e-12)
    assert found == pytest.approx(own_log_likelihood(emission, params, np.where(mask, np.nan, y)), rel=1e-14)


@pytest.mark.parametrize("size", [4, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_mixtures_of_any_number_of_components(size: int) -> None:
    rng = np.random.default_rng(size)
    means = np.sort(rng.normal(size=(2, size)), axis=1) + np.arange(2.0)[:, None]
    params = {"weights": rng.dirichlet(np.ones(size), 2), "means": means, "scales": rng.uniform(0.3, 1.5, (2, size))}
    params |= {"transition": np.array([[0.9, 0.1], [0.3, 0.7]])}
    y = np.append(3.0 * rng.normal(size=60), [np.nan, 90.0])  # far from all components
    model = lh.HMM(2, lh.GaussianMixture(size)).resolve(y)
    found = lh.gradient(model, params, y, prior=False), lh.log_likelihood(model, params, y)
    with patch.object(native, "available", lambda: False):
        expected = lh.gradient(model, params, y, prior=False), lh.log_likelihood(model, params, y)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9), found, expected)
