"""Groups for ArviZ: log likelihoods that add up, and containers that az.loo and az.plot_ppc take."""

import warnings

import numpy as np
import pytest

from longhmm import log_likelihood
from longhmm.posterior.arviz_groups import prior_params
from posterior.fakes import known_states


@pytest.fixture(scope="module")
def known():
    return known_states(600)


@pytest.fixture(scope="module")
def values(known):
    return known.sequences.rows(0, 600).values


def az():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    return arviz


@pytest.mark.parametrize("lengths", [(600,), (100, 200, 300)])
def test_log_likelihoods_of_blocks_and_sequences_add_up(known, values, lengths):
    posterior, cuts = known.posterior(), np.split(values, np.cumsum(lengths)[:-1])
    found = posterior.to_arviz(cuts if len(cuts) > 1 else values, draws=5, blocks=20, rows=50)
    logs = found["log_likelihood"]["y"]
    assert logs.dims == ("chain", "draw", "sequence" if len(cuts) > 1 else "block")
    assert logs.shape == (4, 5, 3 if len(cuts) > 1 else 20)
    natural = {name: np.asarray(found["posterior"][name][2, 3]) for name in ("transition", "mean")}
    parts = [log_likelihood(posterior.model, natural, each) for each in cuts]
    np.testing.assert_allclose(logs[2, 3].sum(), sum(parts), rtol=1e-9)
    if len(parts) > 1:
        np.testing.assert_allclose(logs[2, 3], parts, rtol=1e-9)


def test_loo_and_predictive_plots_work(known, values):
    posterior = known.posterior()
    found = posterior.to_arviz(values, draws=25, blocks=30, rows=80)
    sizes = {
        name: dict(found[name].sizes) for name in ("posterior", "posterior_predictive", "prior", "prior_predictive")
    }
    assert sizes["posterior"]["draw"] == sizes["posterior_predictive"]["draw"] == 25
    assert sizes["posterior_predictive"]["row"] == sizes["prior_predictive"]["row"] == 80
    np.testing.assert_allclose(found["observed_data"]["y"], values[:80, 0])
    arviz = az()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loo = arviz.loo(found)
        elpd = float(loo["elpd_loo"] if "elpd_loo" in getattr(loo, "index", ()) else loo.elpd)
        best = float(np.asarray(found["log_likelihood"]["y"]).sum(axis=2).mean())
        assert best - 20 < elpd < best + 5  # about the log likelihood, less a few parameters
        draw = getattr(arviz, "plot_ppc", None) or arviz.plot_ppc_dist
        draw(found)


def test_prior_draws_follow_the_prior(known):
    import jax

    model = known.model
    drawn = [prior_params(model, jax.random.key(number)) for number in range(300)]
    means = np.array([each["mean"] for each in drawn])
    assert abs(means.mean()) < 1.5 and 9 < means.std() < 11  # Normal(0, 10)
    rows = np.array([each["transition"] for each in drawn])
    np.testing.assert_allclose(rows.sum(axis=2), 1)
    assert abs(rows[:, 0, 0].mean() - 0.5) < 0.06


def test_without_data_all_draws_are_there(known):
    found = known.posterior().to_arviz()
    assert found["posterior"].sizes["draw"] == 500
