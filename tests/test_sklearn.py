"""The estimator of scikit-learn: its conventions with a sampler that costs nothing, its answers with a real one."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import longhmm as lh
from longhmm import sklearn as module
from longhmm.errors import ModelError
from longhmm.model.summary import subsample
from longhmm.posterior.diagnostics.verdict import Verdict
from longhmm.posterior.posterior import Posterior
from longhmm.run.chains import Chains
from longhmm.sklearn import BayesianHMM

# Rows are a time series: a row alone, or in another place, is another observation.
NOT_FOR_TIME_SERIES = {
    "check_methods_sample_order_invariance": "the state of a row depends on the rows around it",
    "check_methods_subset_invariance": "the state of a row depends on the rows around it",
}

TRUTH = {"transition": [[0.95, 0.05], [0.1, 0.9]], "rate": [2.0, 12.0]}


def scattered(model, data, *, chains, draws, seed, **options):
    """Instead of sampling: states spread over the range of the data, so that conventions can be checked quickly."""
    resolved = model.resolve(data)
    values = subsample(data)
    sd, k = np.nanstd(values, axis=0) + 1e-6, model.n_states
    natural = {
        "transition": np.full((k, k), 0.1 / k) + 0.9 * np.eye(k),
        "mean": (np.nanmean(values, axis=0) + np.linspace(-1, 1, k)[:, None] * sd).reshape((k, data.dim)[: data.dim]),
    }
    if data.dim > 1:
        natural["covariance"] = np.tile(np.diag(sd**2), (k, 1, 1))
    else:
        natural["sd"] = np.full(k, sd[0])
    rng = np.random.default_rng(seed)
    coordinates = {
        name: value + 1e-3 * rng.normal(size=(chains, draws, *value.shape))
        for name, value in lh.unconstrain(resolved, natural).items()
    }
    return Posterior.from_chains(resolved, Chains(coordinates, {}, {"sampler": "none"}, None, None, ()), data)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "sample", scattered)
    return BayesianHMM(chains=2, draws=4, predict_draws=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping check")
def test_conventions_of_scikit_learn(quick):
    check_estimator(quick, expected_failed_checks=NOT_FOR_TIME_SERIES)


@pytest.fixture(scope="module")
def series():
    model = lh.HMM(2, lh.Poisson())
    return lh.simulate(model, TRUTH, [700, 500], seed=1)


@pytest.mark.slow
def test_a_real_fit_finds_the_states(series):
    states, values = series
    X, lengths = np.concatenate(values), [700, 500]
    estimator = BayesianHMM(2, "poisson", sampler=lh.Gibbs(), chains=2, draws=30)
    assert estimator.fit(X, lengths=lengths) is estimator
    truth = np.concatenate(states)
    assert np.mean(estimator.predict(X, lengths=lengths) == truth) > 0.97
    proba = estimator.predict_proba(X, lengths=lengths)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-5)
    assert np.mean(proba[np.arange(len(X)), truth]) > 0.95
    # The true parameters cannot be beaten by more than the fit of a few numbers allows.
    exact = lh.log_likelihood(estimator.posterior_.model, TRUTH, values)
    assert estimator.score(X, lengths=lengths) == pytest.approx(exact / len(X), abs=0.01)
    drawn, path = estimator.sample(400, random_state=3)
    assert drawn.shape == (400, 1)
    assert abs(drawn[path == 1].mean() - 12.0) < 5 * np.sqrt(12.0 / np.sum(path == 1)) + 1.0
    np.testing.assert_array_equal(estimator.sample(400, random_state=3)[0], drawn)


@pytest.fixture
def steps():
    rng = np.random.default_rng(0)
    return np.where(np.arange(120)[:, None] % 40 < 20, 0.0, 6.0) + rng.normal(size=(120, 2))


@pytest.mark.slow
def test_a_search_finds_the_number_of_states(quick, steps):
    search = GridSearchCV(quick, {"n_states": [1, 2]}, cv=KFold(2)).fit(steps)
    assert search.best_params_ == {"n_states": 2}


@pytest.mark.parametrize("kind", ["trust", "run longer"])
def test_a_verdict_that_is_not_good_is_a_warning(quick, steps, monkeypatch, kind):
    def judged(*arguments, **options):
        posterior = scattered(*arguments, **options)
        posterior.verdict = Verdict(kind, "that is why")
        return posterior

    monkeypatch.setattr(module, "sample", judged)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        quick.fit(steps)
    said = [str(each.message) for each in told if each.category is ConvergenceWarning]
    assert said == ([] if kind == "trust" else ["The verdict on this fit is 'run longer: that is why'"])


def test_chains_are_judged_without_progress(quick, steps):
    with pytest.warns(ConvergenceWarning, match="The verdict on this fit is 'run longer"):
        quick.set_params(chains=2, draws=20, progress=False).fit(steps)


def test_clone_and_pipeline(quick, steps):
    assert clone(quick).get_params() == quick.get_params()
    own = BayesianHMM(emission=lh.Gaussian(dim=2), n_states=3)
    assert clone(own).n_states == 3
    pipeline = make_pipeline(StandardScaler(), clone(quick)).fit(steps)
    found = pipeline.predict(steps)
    assert found.shape == (120,)
    assert np.mean(found[:10]) < 0.5 < np.mean(found[25:35])


def test_missing_values_and_sequences_are_passed_on(quick):
    X = np.random.default_rng(0).normal(size=(60, 1))
    X[5] = np.nan
    fitted = quick.fit(X, lengths=[20, 40])
    assert fitted.posterior_.settings["data"]["n_sequences"] == 2
    assert fitted.predict(X).dtype == np.int64
    assert fitted.n_features_in_ == 1
    np.testing.assert_array_equal(fitted.predict(X, lengths=[20, 40]), fitted.posterior_.decode([X[:20], X[20:]]))


def test_mistakes_are_explained(quick):
    with pytest.raises(NotFittedError):
        BayesianHMM().predict(np.zeros((3, 1)))
    with pytest.raises(ModelError, match="emission must be an Emission or one of ar, bernoulli"):
        BayesianHMM(emission="normal").fit(np.zeros((10, 1)))
    with pytest.raises(ValueError, match="X has 2 features, but BayesianHMM is expecting 1"):
        quick.fit(np.arange(10.0)[:, None]).predict(np.zeros((4, 2)))


def test_models_and_verdicts_show_themselves_in_notebooks():
    model = lh.HMM(3, lh.StudentT(df=4.0), transition_prior=lh.Sticky(stay=20.0))
    text = model._repr_html_()
    assert "3 states" in text
    assert "fixed at 4" in text
    assert "scaled to the data" in text
    assert "concentration 1 to 20" in text
    from longhmm.posterior.diagnostics.verdict import Verdict

    shown = Verdict("run longer", "R-hat of <b> is 1.2", {"r_hat": 1.23456})._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "1.235" in shown
