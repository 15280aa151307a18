"""Expectation maximisation: never downhill, ends where the gradient vanishes, agrees with an independent library."""

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.backends import native
from longhmm.samplers.em_steps import sums_suffice
from longhmm.samplers.expectation_maximisation import ExpectationMaximisation, left_to_gain
from longhmm.target.target import StreamedPosterior

TRANSITION = np.array([[0.93, 0.07], [0.12, 0.88]])
CASES = {
    "gaussian-full": (lh.Gaussian(2), {
        "mean": [[0.0, 0.0], [2.0, 1.0]], "covariance": [np.eye(2), [[1.0, 0.5], [0.5, 2.0]]]}),
    "gaussian-diagonal": (lh.Gaussian(2, "diagonal"), {
        "mean": [[0.0, 0.0], [2.0, 1.0]], "variance": [[1.0, 1.0], [1.0, 2.0]]}),
    "poisson": (lh.Poisson(), {"rate": [1.0, 6.0]}),
    "categorical": (lh.Categorical(3), {"probs": [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]}),
    "bernoulli": (lh.Bernoulli(2), {"probs": [[0.2, 0.8], [0.7, 0.3]]}),
    "log-normal": (lh.LogNormal(), {"loc": [0.0, 1.0], "scale": [0.5, 0.3]}),
    "student-t": (lh.StudentT(), {"df": [5.0, 20.0], "loc": [-1.0, 3.0], "scale": [0.5, 1.0]}),
    "mixture": (lh.GaussianMixture(2), {
        "weights": [[0.3, 0.7], [0.5, 0.5]], "means": [[-2.0, 1.0], [3.0, 6.0]], "scales": [[0.5, 1.0], [0.5, 0.3]]}),
}  # fmt: skip


def simulated(emission, params, length=1500, seed=1, transition=TRANSITION, **options):
    model = lh.HMM(n_states=len(transition), emission=emission, **options)
    states, y = lh.simulate(model, {**params, "transition": transition}, length, seed)
    return model.resolve(y), states, y


def never_falls(trace):
    return np.all(np.diff(trace) >= -1e-12 * np.abs(trace[1:]))


def log_posterior(model, params, y):
    return lh.log_likelihood(model, params, y) + lh.log_prior(model, params, unconstrained=False)


def natural_directions(model, params):
    """Directions in which natural parameters may move: shares keep their sums, matrices their symmetry."""
    for i in range(model.n_states):
        for j in range(1, model.n_states):
            if model.transitions.free_rows[i] and min(params["transition"][i, [0, j]]) > 1e-3:
                step = np.zeros_like(params["transition"])
                step[i, 0], step[i, j] = -1.0, 1.0
                yield "transition", step
    for name, parameter in model.emission.parameters(model.n_states).items():
        if not parameter.is_free:
            continue
        for index in np.ndindex(parameter.shape):
            step = np.zeros(parameter.shape)
            if (
                name in ("probs", "weights")
                and len(parameter.shape) == 2
                and "simplex" in repr(parameter.support).lower()
            ):
                if index[-1] == 0:
                    continue
                step[index[0], 0] = -1.0
            if name == "covariance":
                step[index[0], index[2], index[1]] = 1.0
            step[index] = 1.0
            yield name, step


def slope(model, params, y, name, step, size):
    ends = [log_posterior(model, {**params, name: params[name] + sign * size * step}, y) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * size), (ends[0] + ends[1] - 2 * log_posterior(model, params, y)) / size**2


SLOW = {"mixture", "gaussian-diagonal", "log-normal", "bernoulli"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_climbs_to_a_stationary_point(name):
    emission, truth = CASES[name]
    model, _, y = simulated(emission, truth, length=500)
    fit = lh.fit_em(model, y, restarts=1, tolerance=1e-9, max_iterations=400, progress=False)
    assert fit.converged
    assert never_falls(fit.log_posterior)
    assert fit.log_posterior[-1] > fit.log_posterior[0]
    assert fit.log_posterior[-1] == pytest.approx(log_posterior(model, fit.params, y), abs=1e-8)
    checked = 0
    for parameter, step in natural_directions(model, fit.params):
        first, second = slope(model, fit.params, y, parameter, step, 1e-4)
        # Less than a thousandth of a posterior standard deviation from the top, and a top it is.
        assert second < 0
        assert abs(first) < 2e-3 * np.sqrt(-second), parameter
        checked += 1
    assert checked >= 4


@pytest.mark.parametrize("kind", ["full", pytest.param("diag", marks=pytest.mark.slow)])
def test_agrees_with_hmmlearn(kind):
    from hmmlearn.hmm import GaussianHMM

    emission = lh.Gaussian(2, "full" if kind == "full" else "diagonal")
    model, _, y = simulated(
        *[(emission, CASES[f"gaussian-{'full' if kind == 'full' else 'diagonal'}"][1])][0], length=800
    )
    start = {"transition": [[0.8, 0.2], [0.3, 0.7]], "mean": [[-0.5, 0.3], [1.5, 0.8]]}
    scatter = "covariance" if kind == "full" else "variance"
    start[scatter] = np.tile(np.eye(2), (2, 1, 1)) if kind == "full" else np.ones((2, 2))
    other = GaussianHMM(
        2, kind, init_params="", params="tmc", n_iter=500, tol=1e-10, covars_prior=0.0, means_weight=0.0,
        min_covar=0.0, covars_weight=0.0,
    )  # fmt: skip
    other.startprob_, other.transmat_ = np.full(2, 0.5), np.array(start["transition"])
    other.means_, other.covars_ = np.array(start["mean"]), np.array(start[scatter])
    other.fit(y.astype(float))
    fit = lh.fit_em(model, y, init=start, prior=False, tolerance=1e-9, max_iterations=500, progress=False)
    assert fit.log_likelihood == pytest.approx(other.score(y.astype(float)), abs=1e-4)
    np.testing.assert_allclose(fit.params["mean"], other.means_, atol=1e-4)
    np.testing.assert_allclose(fit.params["transition"], other.transmat_, atol=1e-4)


def test_one_step_is_the_textbook_one():
    """Weighted means, covariances and counts, from gamma and xi summed over all paths."""
    model, _, y = simulated(lh.Gaussian(2), CASES["gaussian-full"][1], length=9)
    params = model.validate({**CASES["gaussian-full"][1], "transition": TRANSITION})
    logs = np.asarray(model.emission.log_density(params, y.astype(float)), float)
    oracle = lh.testing.enumerate_paths(params["initial"], params["transition"], logs)
    data = StreamedPosterior(model, lh.open_data(y))
    sampler = ExpectationMaximisation(prior=False)
    state = sampler.at(params, data)
    assert state.expected.log_likelihood == pytest.approx(oracle.log_likelihood, abs=1e-5)
    new, info = sampler.step(data, None, state)
    gamma, weights = oracle.gamma, oracle.gamma.sum(0)
    mean = gamma.T @ y / weights[:, None]
    deviations = y[:, None, :] - mean
    covariance = np.einsum("tk,tki,tkj->kij", gamma, deviations, deviations) / weights[:, None, None]
    counts = oracle.xi.sum(0)
    np.testing.assert_allclose(new.params["mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new.params["covariance"], covariance, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new.params["transition"], counts / counts.sum(1, keepdims=True), rtol=1e-5)
    assert info.stats["halvings"] == 0
    assert info.stats["gain"] > 0


@pytest.mark.slow
def test_recovers_parameters_and_ignores_a_large_offset():
    model, _, y = simulated(lh.Gaussian(), {"mean": [-2.0, 2.0], "sd": [1.0, 0.5]}, length=20_000)
    fit = lh.fit_em(model, y, restarts=2, progress=False)
    np.testing.assert_allclose(fit.params["mean"], [-2.0, 2.0], atol=0.05)
    np.testing.assert_allclose(fit.params["sd"], [1.0, 0.5], atol=0.05)
    np.testing.assert_allclose(fit.params["transition"], TRANSITION, atol=0.015)
    far = lh.fit_em(lh.HMM(n_states=2, emission=lh.Gaussian()), y.astype(float) + 1e8, restarts=2, progress=False)
    np.testing.assert_allclose(far.params["mean"] - 1e8, fit.params["mean"], atol=1e-4)
    np.testing.assert_allclose(far.params["sd"], fit.params["sd"], rtol=1e-4)


def test_forbidden_and_fixed_transitions_stay():
    concentration = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    transition = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.3, 0.0, 0.7]])
    model, _, y = simulated(
        lh.Poisson(), {"rate": [9.0, 1.0, 4.0]}, transition=transition, transition_prior=concentration,
        fixed_rows={2: [0.3, 0.0, 0.7]},
    )  # fmt: skip
    fit = lh.fit_em(model, y, restarts=3, progress=False)
    assert np.all(fit.params["transition"][concentration == 0] == 0)
    np.testing.assert_allclose(fit.params["transition"][2], [0.3, 0.0, 0.7], atol=1e-12)
    np.testing.assert_allclose(fit.params["rate"], [9.0, 1.0, 4.0], rtol=0.15)
    np.testing.assert_allclose(fit.params["transition"], transition, atol=0.05)


@pytest.mark.slow
def test_tied_levels_with_two_dwell_times():
    """Two states of one level differ in how long they last; each level has one rate."""
    transition = np.array([[0.99, 0.0, 0.01], [0.0, 0.7, 0.3], [0.05, 0.15, 0.8]])
    emission = lh.Tied(lh.Poisson(), levels=(0, 0, 1))
    model, _, y = simulated(
        emission,
        {"rate": [1.0, 9.0]},
        length=6000,
        transition=transition,
        transition_prior=np.where(transition > 0, 1.0, 0.0),
    )
    fit = lh.fit_em(model, y, restarts=2, progress=False, tolerance=1e-6)
    assert never_falls(fit.log_posterior)
    np.testing.assert_allclose(fit.params["rate"], [1.0, 9.0], rtol=0.06)
    np.testing.assert_allclose(np.sort(np.diag(fit.params["transition"])[:2]), [0.7, 0.99], atol=0.07)
    by_hand = lh.log_likelihood(model, {"transition": transition, "rate": [1.0, 9.0]}, y)
    assert fit.log_likelihood > by_hand


@pytest.mark.slow
def test_partly_missing_rows_use_what_is_there():
    model, _, y = simulated(lh.Gaussian(2), CASES["gaussian-full"][1], length=1200)
    holes = y.astype(float)
    rng = np.random.default_rng(0)
    holes[rng.random(holes.shape) < 0.2] = np.nan
    model = lh.HMM(n_states=2, emission=lh.Gaussian(2)).resolve(holes)
    # The C++ kernel completes its sums with what is expected of the missing features.
    assert sums_suffice(StreamedPosterior(model, lh.open_data(holes))) == native.usable()
    assert sums_suffice(StreamedPosterior(model, lh.open_data(y)))
    fit = lh.fit_em(model, holes, restarts=1, tolerance=1e-9, max_iterations=500, progress=False)
    assert never_falls(fit.log_posterior)
    for parameter, step in natural_directions(model, fit.params):
        first, second = slope(model, fit.params, holes, parameter, step, 1e-4)
        assert abs(first) < 2e-3 * np.sqrt(-second), parameter


def test_whole_missing_rows_and_many_sequences():
    model, _, y = simulated(lh.Poisson(), {"rate": [1.0, 6.0]}, length=[300, 7, 500, 1])
    holes = [np.where(np.arange(len(each))[:, None] % 5 == 4, np.nan, each.astype(float)) for each in y]
    fit = lh.fit_em(model, holes, restarts=2, tolerance=1e-8, progress=False)
    assert never_falls(fit.log_posterior)
    np.testing.assert_allclose(fit.params["rate"], [1.0, 6.0], rtol=0.15)
    first, second = slope(model, fit.params, holes, "rate", np.array([1.0, 0.0]), 1e-4)
    assert abs(first) < 2e-3 * np.sqrt(-second)


@pytest.mark.slow
def test_a_stationary_start_belongs_to_the_transitions():
    """Thousands of sequences of two observations: the law of the first says as much about A as the transition."""
    model, _, y = simulated(lh.Poisson(), {"rate": [1.0, 9.0]}, length=1200, initial="stationary")
    pieces = lh.open_data(y, lengths=[2] * 600)
    fit = lh.fit_em(model, pieces, restarts=1, tolerance=1e-9, max_iterations=500, progress=False)
    params = {name: value for name, value in fit.params.items() if name != "initial"}
    assert fit.converged
    for parameter, step in natural_directions(model, params):
        first, second = slope(model, params, pieces, parameter, step, 1e-5)
        assert abs(first) < 5e-3 * np.sqrt(-second), parameter


def test_known_states_are_obeyed():
    model, states, y = simulated(lh.Gaussian(), {"mean": [-1.0, 1.0], "sd": [1.0, 1.0]})
    known = np.where(np.arange(len(states)) % 3 == 0, 1 - states, -1)  # named the other way round
    fit = lh.fit_em(model, lh.open_data(y, states=known), restarts=2, progress=False)
    np.testing.assert_allclose(fit.params["mean"], [1.0, -1.0], atol=0.2)
    assert never_falls(fit.log_posterior)


def test_corners_fixed_constants_and_known_degrees_of_freedom():
    """A Laplace density has no curvature at all in its location."""
    emission = lh.Emission(dist.Laplace, loc=dist.Normal(0.0, 10.0), scale=0.5)
    model, _, y = simulated(emission, {"loc": [-1.0, 1.5]}, length=2000)
    fit = lh.fit_em(model, y, restarts=2, progress=False)
    assert never_falls(fit.log_posterior)
    np.testing.assert_allclose(fit.params["loc"], [-1.0, 1.5], atol=0.06)
    assert fit.params["scale"].tolist() == [0.5, 0.5]


def test_one_state_and_a_given_start():
    y = np.random.default_rng(0).poisson(4.0, size=400)
    model = lh.HMM(n_states=1, emission=lh.Poisson(rate=dist.Gamma(3.0, 2.0)))
    fit = lh.fit_em(model, y, init={"transition": [[1.0]], "rate": [1.0]}, progress=False)
    assert fit.params["rate"][0] == pytest.approx((y.sum() + 3.0 - 1.0) / (len(y) + 2.0), rel=1e-7)  # conjugate mode
    assert np.array_equal(fit.params["transition"], [[1.0]])


def test_extrapolation_of_a_geometric_climb():
    trace = [-(0.5**n) for n in range(10)]
    assert left_to_gain(trace) == pytest.approx(0.5**9, rel=1e-9)
    assert left_to_gain([0.0, 1.0]) == np.inf
    assert left_to_gain([0.0, 1.0, 1.0]) == 0.0


def test_bad_arguments_are_named():
    with pytest.raises(lh.errors.ModelError, match="restarts must be a whole number of at least 1"):
        lh.fit_em(lh.HMM(n_states=2, emission=lh.Poisson()), [1, 2, 3], restarts=0)
