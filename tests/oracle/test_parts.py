"""Rows that are observed in part: every family with several features against the enumeration of all paths."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from backends.oracle import Truth, enumerate_paths
from longhmm.backends import native
from longhmm.backends.read import Reader
from longhmm.data.sequences import open_data
from longhmm.target.minibatch import Minibatch, with_numbers
from longhmm.target.target import ResidentData

TRANSITION = np.array([[0.8, 0.2], [0.3, 0.7]])
MEANS = np.array([[0.0, 1.0, -1.0], [1.5, -0.5, 0.5]])
POSITIVE = np.array([[1.0, 2.0], [3.0, 0.7]])
COVARIANCE = np.array([[[1.0, 0.6, 0.2], [0.6, 0.8, -0.1], [0.2, -0.1, 0.5]], 0.5 * np.eye(3) + 0.3])
HOLES = [(0,), (1, 2), (), (0, 1, 2), (2,), (0, 2)]  # features that are missing, row by row


def gaussian(mean: np.ndarray, covariance: np.ndarray, y: np.ndarray) -> float:
    seen = ~np.isnan(y)
    return stats.multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(y[seen]) if seen.any() else 0.0


def features(laws: list[Any], y: np.ndarray) -> float:
    """Independent features, each with a law of SciPy."""
    pairs = [(law, value) for law, value in zip(laws, y, strict=True) if not np.isnan(value)]
    return float(sum(law.logpmf(value) if hasattr(law, "logpmf") else law.logpdf(value) for law, value in pairs))


def each(make: Any, *names: str) -> Any:
    return lambda p, k, y: features(
        [make(*numbers) for numbers in zip(*(p[name][k] for name in names), strict=True)], y
    )


CASES: dict[str, tuple[lh.Emission, dict[str, np.ndarray], Any]] = {
    "full": (
        *(lh.Gaussian(dim=3), {"mean": MEANS, "covariance": COVARIANCE}),
        lambda p, k, y: gaussian(p["mean"][k], p["covariance"][k], y),
    ),
    "tied": (
        *(lh.Tied(lh.Gaussian(dim=3), (0, 0)), {"mean": MEANS[:1], "covariance": COVARIANCE[:1]}),
        lambda p, k, y: gaussian(p["mean"][0], p["covariance"][0], y),
    ),
    "diagonal": (
        *(lh.Gaussian(dim=2, covariance="diagonal"), {"mean": MEANS[:, :2], "variance": POSITIVE}),
        lambda p, k, y: gaussian(p["mean"][k], np.diag(p["variance"][k]), y),
    ),
    "log-normal": (
        *(lh.LogNormal(2), {"loc": MEANS[:, :2], "scale": POSITIVE}),
        each(lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)), "loc", "scale"),
    ),
    "student-t": (
        *(lh.StudentT(2), {"df": 2 * POSITIVE, "loc": MEANS[:, :2], "scale": POSITIVE}),
        each(stats.t, "df", "loc", "scale"),
    ),
    "gamma": (
        *(lh.Gamma(2), {"concentration": 2 * POSITIVE, "rate": POSITIVE}),
        each(lambda a, rate: stats.gamma(a, scale=1 / rate), "concentration", "rate"),
    ),
    "poisson": (lh.Poisson(2), {"rate": 2 * POSITIVE}, each(stats.poisson, "rate")),
    "bernoulli": (lh.Bernoulli(2), {"probs": 0.3 * POSITIVE}, each(stats.bernoulli, "probs")),
    "product": (
        lh.Product(step=lh.Gamma(), pairs=lh.Poisson(2)),
        {"step_concentration": POSITIVE[:, 0], "step_rate": POSITIVE[:, 1], "pairs_rate": 2 * POSITIVE},
        lambda p, k, y: (
            features([stats.gamma(p["step_concentration"][k], scale=1 / p["step_rate"][k])], y[:1])
            + features([stats.poisson(rate) for rate in p["pairs_rate"][k]], y[1:])
        ),
    ),
}


def problem(name: str) -> tuple[lh.HMM, dict[str, np.ndarray], np.ndarray, Any]:
    emission, params, law = CASES[name]
    params = {"transition": TRANSITION, **params}
    model = lh.HMM(2, emission)
    _, y = lh.simulate(model, params, len(HOLES), seed=1)
    y = np.array(y, np.float64)
    for row, holes in enumerate(HOLES):
        y[row, [hole for hole in holes if hole < y.shape[1]]] = np.nan
    return model.resolve(y), params, y, law


QUICK = ("full", "poisson", "student-t")


def truth(params: dict[str, np.ndarray], y: np.ndarray, law: Any) -> Truth:
    logs = np.array([[law(params, k, row) for k in range(2)] for row in y])
    matrices = np.broadcast_to(np.asarray(params["transition"]), (len(y), 2, 2))
    return enumerate_paths(np.full(2, 0.5), matrices, logs, opens=True)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_values_probabilities_and_paths(name: str, tmp_path: Any) -> None:
    model, params, y, law = problem(name)
    exact = truth(params, y, law)
    np.save(tmp_path / "rows.npy", y)
    for data in (y, tmp_path / "rows.npy"):
        assert lh.log_likelihood(model, params, data) == pytest.approx(exact.log_likelihood, rel=1e-12)
        np.testing.assert_allclose(lh.state_probabilities(model, params, data), exact.gamma, atol=1e-6)
        np.testing.assert_array_equal(lh.decode(model, params, data), exact.best)
        if native.usable():
            assert Reader(model, open_data(data)).lowering is not None
    drawn = lh.sample_states(model, params, y, draws=4000, seed=3)
    np.testing.assert_allclose((drawn == 1).mean(axis=0), exact.gamma[:, 1], atol=0.04)


# A tied Gaussian is one, a log-normal one of logarithms, and Bernoulli and gamma are linear like the Poisson.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("tied", "log-normal", "bernoulli", "gamma") else name
        for name in CASES
    ],
)
def test_gradients(name: str) -> None:
    model, params, y, law = problem(name)
    found = lh.gradient(model, params, y, prior=False)
    with jax.enable_x64(True):
        u = {key: np.asarray(value, np.float64) for key, value in model.unconstrain(params).items()}

        def value(at: dict[str, np.ndarray]) -> float:
            natural = {key: np.asarray(each) for key, each in model.constrain(at).items()}
            return truth(natural, y, law).log_likelihood

        for key, slope in found.items():
            for index in np.ndindex(slope.shape):
                step = np.zeros(slope.shape)
                step[index] = 1e-5
                ends = [value({**u, key: u[key] + sign * step}) for sign in (1, -1)]
                assert slope[index] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-7), (key, index)
        resident = ResidentData().bind(model, open_data(y), model.validate(params))
        _, gradient = resident.log_density_and_gradient(u)
        prior = lh.gradient(model, params, y)
        for key, slope in gradient.items():
            np.testing.assert_allclose(slope, prior[key], rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not native.usable(), reason="the other backends compute such log likelihoods beforehand")
@pytest.mark.parametrize("name", CASES)
def test_windows_read_on_the_host_reach_the_kernel(name: str) -> None:
    model, _, y, _ = problem(name)
    rows = open_data(y).rows(0, len(y))
    batch = Minibatch(jax.tree.map(lambda part: part[None], rows), None, None)
    assert with_numbers(model, batch).numbers.shape == (len(y), model.emission.lowering.width)
