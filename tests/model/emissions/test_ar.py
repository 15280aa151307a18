"""Autoregression: densities given the past, gaps, kernels, windows, draws, forecasts, storage and the command line."""

import itertools
import json
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from typer.testing import CliRunner

import longhmm as lh
from longhmm.backends import native
from longhmm.backends.read import Reader
from longhmm.cli import app
from longhmm.cli.options import build_model
from longhmm.data.layout import Partition, gather
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.posterior.diagnostics.observations import residuals

MOVES = np.array([[0.95, 0.05], [0.1, 0.9]])
ONE = lh.HMM(2, lh.AR(lags=2))
ONE_PARAMS: dict[str, Any] = {
    "transition": MOVES,
    "intercept": np.array([50.0, 20.0]),
    "phi": np.array([[1.2, -0.7], [0.3, 0.2]]),
    "sd": np.array([0.5, 1.0]),
}
TWO = lh.HMM(2, lh.AR(dim=2, lags=1))
TWO_PARAMS: dict[str, Any] = {
    "transition": MOVES,
    "intercept": np.array([[0.0, 1.0], [2.0, 0.0]]),
    "phi": np.array([[[[0.9, -0.3], [0.3, 0.9]]], [[[0.2, 0.0], [0.5, -0.4]]]]),
    "covariance": np.array([[[1.0, 0.3], [0.3, 0.5]], [[0.2, 0.0], [0.0, 0.4]]]),
}
BOTH = pytest.mark.parametrize(("model", "params"), [(ONE, ONE_PARAMS), (TWO, TWO_PARAMS)], ids=["one", "two"])


def ragged(model: lh.HMM, params: Any, lengths: list[int], seed: int = 1) -> list[np.ndarray]:
    """Simulated sequences with gaps, of single features too."""
    sequences = [np.array(each, np.float64) for each in lh.simulate(model, params, lengths, seed=seed)[1]]
    rng = np.random.default_rng(seed)
    for each in sequences:
        each[rng.random(each.shape) < 0.06] = np.nan
    return sequences


def by_enumeration(params: Any, sequence: np.ndarray, lags: int) -> float:
    """The sum over all paths of what rows with a whole past say."""
    n, dim = sequence.shape
    logs = np.zeros((n, 2))
    for t, k in itertools.product(range(lags, n), range(2)):
        if not np.isnan(sequence[t - lags : t + 1]).any():
            weights = np.reshape(params["phi"][k], (lags, dim, dim))
            mean = params["intercept"][k] + sum(weights[lag] @ sequence[t - 1 - lag] for lag in range(lags))
            spread = params["covariance"][k] if dim > 1 else params["sd"][k] ** 2
            logs[t, k] = stats.multivariate_normal(np.atleast_1d(mean), spread).logpdf(sequence[t])
    paths = np.array(list(itertools.product(range(2), repeat=n)))
    moves = np.log(params["transition"])[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    return float(np.logaddexp.reduce(np.log(0.5) + moves + logs[np.arange(n), paths].sum(axis=1)))


@BOTH
def test_the_likelihood_is_the_sum_over_all_paths_given_the_first_rows(model: lh.HMM, params: Any) -> None:
    sequences = ragged(model, params, [10, 1, 8, 2])
    sequences[0][5] = np.nan
    expected = sum(by_enumeration(params, each, model.lags) for each in sequences)
    assert lh.log_likelihood(model, params, sequences) == pytest.approx(expected, rel=1e-11)
    with patch.object(native, "available", lambda: False):
        assert lh.log_likelihood(model, params, sequences) == pytest.approx(expected, rel=1e-11)


@BOTH
@pytest.mark.slow
def test_it_is_coherent(model: lh.HMM, params: Any) -> None:
    lh.testing.check_coherence(model, params, ragged(model, params, [30])[0])


@BOTH
def test_the_kernel_and_densities_give_the_slopes_of_the_likelihood(model: lh.HMM, params: Any) -> None:
    data = open_data(ragged(model, params, [400, 3, 150]))
    resolved = model.resolve(data)
    assert Reader(resolved, data).lowering is not None
    found = lh.gradient(resolved, params, data, prior=False)
    known = lh.open_data(ragged(model, params, [400, 3, 150]), states=[np.full(n, -1) for n in (400, 3, 150)])
    assert Reader(resolved, known).lowering is None  # known states: log likelihoods and automatic differentiation
    plain = lh.gradient(resolved, params, known, prior=False)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-7), found, plain)
    at = lh.unconstrain(resolved, params)
    for name, slopes in found.items():
        for place in np.ndindex(np.shape(slopes)):
            step = np.zeros(np.shape(slopes))
            step[place] = 1e-5
            ends = [lh.constrain(resolved, {**at, name: at[name] + sign * step}) for sign in (1, -1)]
            one, other = (lh.log_likelihood(resolved, end, data) for end in ends)
            assert slopes[place] == pytest.approx((one - other) / 2e-5, rel=2e-5, abs=2e-4), (name, place)


def test_windows_see_the_rows_before_them() -> None:
    values = np.arange(40.0)
    values[11] = np.nan
    data, cut = open_data([values, values[:5]]), Partition(np.array([0, 40, 45]), 5)
    rows, _ = gather(data, cut.locate(np.array([2, 8]), 1), cut.width(1), 2)
    np.testing.assert_array_equal(rows.lags[0, :4, :, 0], [[8, 7], [9, 8], [10, 9], [np.nan, 10]])
    np.testing.assert_array_equal(rows.lags[1, :3, :, 0], [[np.nan, np.nan], [0, np.nan], [1, 0]])
    # So that windows whose buffers reach the ends of sequences give the exact gradient, whatever their cores.
    sequences = ragged(ONE, ONE_PARAMS, [60, 25])
    model = ONE.resolve(sequences)
    exact = lh.gradient(model, ONE_PARAMS, sequences)
    estimator = lh.Buffered(windows=lh.Windows(half_width=2, count=17), buffer=lh.FixedBuffer(64))
    buffered = lh.gradient(model, ONE_PARAMS, sequences, estimator=estimator)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-3, atol=0.5), buffered, exact)


@pytest.mark.slow
def test_the_default_sampler_agrees_with_nuts_and_the_truth(tmp_path: Any) -> None:
    states, values = lh.simulate(ONE, ONE_PARAMS, 3000, seed=3)
    values[1000] = np.nan
    posterior = lh.sample(ONE, values, sampler=lh.ControlVariateSGLD(), draws=150, chains=2, seed=1, progress=False)
    nuts = lh.sample(ONE, values, sampler=lh.NUTS(), draws=80, chains=1, seed=1, progress=False, verdict=False)
    order = np.argsort(np.asarray(ONE.emission.level(ONE_PARAMS))[:, 0])
    for name in ("phi", "sd", "intercept"):
        ours, exact = posterior.draws[name], nuts.draws[name]
        sd = exact.std(("chain", "draw")).values
        truth = ONE_PARAMS[name][order]
        assert np.all(np.abs(ours.mean(("chain", "draw")).values - exact.mean(("chain", "draw")).values) < 0.5 * sd)
        assert np.all(np.abs(exact.mean(("chain", "draw")).values - truth) < 4.5 * sd)
        np.testing.assert_allclose(ours.std(("chain", "draw")), sd, rtol=0.35)
    assert posterior.draws["phi"].dims == ("chain", "draw", "state", "lag")
    decoded = posterior.decode(values)
    assert np.mean(np.argsort(order)[states] == decoded) > 0.97
    left = residuals(posterior.model, next(posterior.iterate(1)), open_data(values))
    assert left is not None and abs(left.autocorrelation[0]) < 0.05 and left.distance_p_value[0] > 1e-3
    ahead = posterior.forecast(values, 100, draws=5, paths=200)
    assert abs(ahead.mean[-1, 0] - np.nanmean(values)) < 4 * np.nanstd(values) / np.sqrt(100)
    score = posterior.score(values[1500:], draws=3, after=values[:1500])
    assert np.isfinite(score.log_density) and np.isfinite(posterior.score(values, draws=2).log_density)
    posterior.save(tmp_path / "run")
    again = lh.load(tmp_path / "run")
    assert isinstance(again.model.emission, lh.AR) and again.model.lags == 2
    np.testing.assert_array_equal(again.draws["phi"], posterior.draws["phi"])


def test_expectation_maximisation_reaches_the_regression_of_known_states() -> None:
    """One state: least squares in closed form, but for what priors add."""
    flat = dist.ImproperUniform
    real, positive = flat(dist.constraints.real, (), ()), flat(dist.constraints.positive, (), ())
    model = lh.HMM(1, lh.AR(lags=2, intercept=real, phi=real, sd=positive))
    y = lh.simulate(model, {"transition": [[1.0]], "intercept": [5.0], "phi": [[0.5, 0.2]], "sd": [1.0]}, 400)[1][:, 0]
    fit = lh.fit_em(model, y, seed=0)
    y = np.asarray(y, np.float64)
    design = np.stack([np.ones(398), y[1:-1], y[:-2]], axis=1)
    best, residual, *_ = np.linalg.lstsq(design, y[2:], rcond=None)
    np.testing.assert_allclose([fit.params["intercept"][0], *fit.params["phi"][0]], best, rtol=1e-4)
    np.testing.assert_allclose(fit.params["sd"], np.sqrt(residual / 398), rtol=1e-4)


def test_it_is_stored_and_named(tmp_path: Any) -> None:
    for model, params in ((ONE, ONE_PARAMS), (TWO, TWO_PARAMS)):
        resolved = model.resolve(ragged(model, params, [300]))
        config = json.loads(json.dumps(model_to_config(resolved)))
        again = model_from_config(config)
        assert model_to_config(again) == config and again.lags == model.lags
        assert jax.tree.structure(again.emission) == jax.tree.structure(resolved.emission)
    assert repr(TWO.emission) == "AR(dim=2, lags=1)"
    np.save(tmp_path / "y.npy", lh.simulate(ONE, ONE_PARAMS, 300, seed=2)[1])
    wrong = CliRunner().invoke(app, f"fit {tmp_path}/y.npy --states 2 --emission gaussian --lags 2".split())
    assert wrong.exit_code != 0 and "lags" in wrong.output and "Traceback" not in wrong.output
    asked = build_model("ar", 2, open_data(tmp_path / "y.npy"), priors=[], stay=None, lags=2)
    assert asked.emission.lags == 2 and asked.emission.name == "AR"


@pytest.mark.slow
def test_the_command_line_fits_it(tmp_path: Any) -> None:
    np.save(tmp_path / "y.npy", lh.simulate(ONE, ONE_PARAMS, 1500, seed=2)[1])
    command = f"fit {tmp_path}/y.npy --states 2 --emission ar --lags 2 --draws 20 --out {tmp_path}/run"
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    assert lh.load(tmp_path / "run").draws["phi"].shape[-1] == 2


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ModelError, match="lags must be a whole number of at least 1, got 0"):
        lh.AR(lags=0)
    with pytest.raises(ModelError, match="the noise 'covariance'"):
        lh.AR(dim=2, sd=1.0)
