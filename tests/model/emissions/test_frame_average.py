"""Detectors that average, against all paths through the sub-steps, a closed form, differences, and simulated rates."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats
from scipy.linalg import expm

import longhmm as lh
from longhmm.data.rows import Rows
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.observations import residuals

TWO = lh.Rates("1 <-> 2", dt=0.5)
CHAIN = lh.Rates("1 <-> 2 <-> 3", dt=0.1)
RATES = np.array([2.0, 1.0])
PARAMS = {"rates": RATES, "mean": np.array([0.0, 1.0]), "sd": np.array([0.1, 0.2])}
FAST = {"rates": np.array([4.0, 3.0, 5.0, 2.0]), "mean": np.array([-1.0, 0.5, 2.0]), "sd": np.array([0.3, 0.2, 0.4])}


def model(substeps=4, moves=TWO, emission=None, **options):
    return lh.HMM(moves.n_states, lh.FrameAverage(emission, substeps=substeps, **options), transitions=moves)


def densities(one, params, values):
    """`(n, K, K)`, with complete parameters and in float64."""
    complete = one.validate(params)
    with jax.enable_x64(True):
        rows = Rows(np.asarray(values, float)[:, None], np.ones((len(values), 1), bool))
        logs = jax.jit(one.log_likelihoods)({name: jnp.asarray(each) for name, each in complete.items()}, rows)
        return np.exp(np.asarray(logs))


def by_all_paths(moves, generator, levels, m, value, density):
    """`p(y, x_t = j | x_{t-1} = i)`, the sum over all states in the middles of the sub-steps."""
    n, dt = len(generator), float(moves.dt[0])
    half, whole = expm(generator * dt / (2 * m)), expm(generator * dt / m)
    found = np.zeros((n, n))
    for path in itertools.product(range(n), repeat=m):
        steps = np.prod([whole[one, other] for one, other in itertools.pairwise(path)])
        found += np.outer(half[:, path[0]], half[path[-1]]) * steps * density(value, np.array(levels)[list(path)])
    return found


@pytest.mark.parametrize("levels", [None, (0, 0, 1), (1, 0, 1)])
def test_densities_are_those_of_all_paths_through_sub_steps(levels):
    one, own = model(4, CHAIN, levels=levels), (0, 1, 2) if levels is None else levels
    params = {**FAST, "mean": FAST["mean"][: max(own) + 1], "sd": FAST["sd"][: max(own) + 1]}
    with jax.enable_x64(True):
        generator = np.asarray(jax.jit(CHAIN.generator)(FAST["rates"]))

    def density(value, path):
        sd = np.sqrt(np.mean(params["sd"][path] ** 2))
        return stats.norm.pdf(value, np.mean(params["mean"][path]), sd)

    values = [-1.2, 0.3, 1.9]
    joint = densities(one, params, values) * expm(generator * 0.1)
    for value, found in zip(values, joint, strict=True):
        np.testing.assert_allclose(found, by_all_paths(CHAIN, generator, own, 4, value, density), rtol=1e-9)


def test_photon_counts_have_the_mean_rate_of_a_frame():
    one = model(3, TWO, lh.Poisson())
    with jax.enable_x64(True):
        generator = np.asarray(jax.jit(TWO.generator)(RATES))
    rate, values = np.array([2.0, 11.0]), [0, 5, 9]
    joint = densities(one, {"rates": RATES, "rate": rate}, values) * expm(generator * 0.5)
    for value, found in zip(values, joint, strict=True):
        expected = by_all_paths(TWO, generator, (0, 1), 3, value, lambda y, p: stats.poisson.pmf(y, rate[p].mean()))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def variance(substeps):
    """Of the mean level over a frame, in the long run."""
    one = model(substeps).resolve(np.linspace(0, 1, 10))
    with jax.enable_x64(True):
        params = {"rates": jnp.asarray(RATES), "mean": jnp.arange(2.0), "sd": jnp.ones(2)}
        every = jax.jit(lambda at: (one.emission._chances(at), one.emission._mixed(at), TWO.typical(at["rates"])))
        chances, mixed, moves = jax.tree.map(np.asarray, every(params))
        mean = mixed["mean"]
    weights = np.einsum("i,ij,ijc->c", RATES[::-1] / RATES.sum(), moves, chances)
    return weights @ mean**2 - (weights @ mean) ** 2


def test_the_error_falls_with_the_square_of_the_sub_steps():
    """The variance of the mean of a two-state process over a time t is `2 p q (k t - 1 + exp(-k t)) / (k t)^2`."""
    passed = RATES.sum() * 0.5
    exact = 2 * np.prod(RATES) / RATES.sum() ** 2 * (passed - 1 + np.exp(-passed)) / passed**2
    errors = np.array([variance(substeps) / exact - 1 for substeps in (4, 8, 16)])
    np.testing.assert_allclose(errors[:-1] / errors[1:], 4.0, rtol=0.03)
    assert errors[1] == pytest.approx(0.0092, abs=1e-4)
    assert variance(None) == pytest.approx(exact, rel=1e-12)


def two_states(a, b, density):
    """`(2, 2)`, the integral of the joint density of the end of a frame and the share x of the second state."""

    def joint(x, i, j):
        z = 2 * np.sqrt(a * b * x * (1 - x))
        other = [[np.sqrt(a * b * (1 - x) / x), a], [b, np.sqrt(a * b * x / (1 - x))]][i][j]
        return other * special.iv(i == j, z) * np.exp(-a * (1 - x) - b * x) * density(x)

    found = [
        [integrate.quad(joint, 0, 1, (i, j), epsabs=0, epsrel=1e-11, limit=200)[0] for j in (0, 1)] for i in (0, 1)
    ]
    return found + np.diag([np.exp(-a) * density(0.0), np.exp(-b) * density(1.0)])


@pytest.mark.parametrize("levels", [None, (1, 0)])
def test_two_states_need_no_sub_steps(levels):
    """Against adaptive quadrature of the closed form, of means with noise and of counts."""
    own = np.array([0, 1] if levels is None else levels)
    values, mean, sd = [-0.1, 0.3, 0.9], PARAMS["mean"][own], PARAMS["sd"][own]
    joint = densities(model(None, TWO, levels=levels), PARAMS, values) * expm(np.array([[-1.0, 1.0], [0.5, -0.5]]))
    for value, found in zip(values, joint, strict=True):

        def density(x, y=value):
            return stats.norm.pdf(y, (1 - x) * mean[0] + x * mean[1], np.sqrt((1 - x) * sd[0] ** 2 + x * sd[1] ** 2))

        np.testing.assert_allclose(found, two_states(1.0, 0.5, density), rtol=1e-7)
    rate, counts = np.array([2.0, 21.0]), [0, 9, 20]
    one = model(None, TWO, lh.Poisson(), levels=levels)
    joint = densities(one, {"rates": RATES, "rate": rate}, counts) * expm(np.array([[-1.0, 1.0], [0.5, -0.5]]))
    for count, found in zip(counts, joint, strict=True):
        expected = two_states(
            1.0, 0.5, lambda x, y=count: stats.poisson.pmf(y, (1 - x) * rate[own[0]] + x * rate[own[1]])
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_sub_steps_converge_to_two_states_without_them():
    values = [-0.1, 0.3, 0.55, 0.9]
    exact, *cut = (densities(model(substeps), PARAMS, values) for substeps in (None, 16, 32, 64))
    errors = np.array([np.abs(each / exact - 1).max() for each in cut])
    np.testing.assert_allclose(errors[:-1] / errors[1:], 4.0, rtol=0.1)
    limit = cut[-1] + (cut[-1] - cut[-2]) / 3  # where the square of the sub-steps' length goes to 0
    assert np.abs(limit / exact - 1).max() < errors[-1] / 50


@pytest.mark.parametrize("step", [0.2, 1.5])
def test_frames_are_distributed_as_simulated_in_continuous_time(step):
    """Dwell times one after the other, no sub-steps: 20,000 frames, those of each pair of states."""
    rng, n, rates = np.random.default_rng(4), 20_000, np.array([2.0, 1.0])
    beside = {"wait": np.where(np.arange(n) % 2, step, 0.5)}
    begin = states = rng.integers(2, size=n)
    left, second = np.full(n, step), np.zeros(n)
    while left.any():
        stay = np.minimum(rng.exponential(1 / rates[states]), left)
        second, left = second + stay * states, left - stay
        states = np.where(left > 0, 1 - states, states)
    share = second / step
    values = share + rng.normal(size=n) * np.sqrt((1 - share) * 0.1**2 + share * 0.2**2)
    one = model(None, lh.Rates("1 <-> 2", dt="wait")).resolve(lh.open_data(values, covariates=beside))
    complete = one.validate(PARAMS)
    with jax.enable_x64(True):
        rows = Rows(values[:, None], np.ones((n, 1), bool), covariates=np.full((n, 1), step))
        params = {name: jnp.asarray(each) for name, each in complete.items()}
        below = np.asarray(jax.jit(one.emission.cdf_of_rows)(params, rows)[0])[..., 0]
    for pair in range(4):
        here = begin * 2 + states == pair
        assert here.sum() > 500 and stats.kstest(below[here, pair], "uniform").pvalue > 0.01


def test_everything_agrees_with_all_paths():
    values = np.array([0.1, 0.9, np.nan, 0.4, 0.6, 1.1, 0.0])
    lh.testing.check_coherence(model(3), PARAMS, lh.open_data([values[:4], values[4:]]))


@pytest.mark.parametrize("substeps", [3, None])
def test_gradients_are_those_of_differences(substeps):
    one = model(substeps)
    _, values = lh.simulate(one, PARAMS, 200, seed=3)
    slope = lh.gradient(one, PARAMS, values, prior=False)
    at = lh.unconstrain(one.resolve(values), PARAMS)
    for name in ("transition", "mean", "sd"):
        for index in range(2):
            moved = [{**at, name: at[name] + sign * 1e-5 * np.eye(2)[index]} for sign in (1, -1)]
            ends = [lh.constrain(one.resolve(values), each) for each in moved]
            high, low = (lh.log_likelihood(one, {n: each[n] for n in PARAMS}, values) for each in ends)
            assert slope[name][index] == pytest.approx((high - low) / 2e-5, rel=2e-6), name


BY_ROW = lh.Rates("C <-> O", dt="wait", scaled={"C -> O": "conc"}, sloped={"O -> C": "volt"})


def by_row_data(n):
    rng = np.random.default_rng(1)
    beside = {"wait": rng.choice([0.05, 0.1, 0.4], n), "conc": rng.choice([0.5, 3.0], n), "volt": rng.uniform(-1, 1, n)}
    return beside, rng.normal(0.5, 0.7, n)


@pytest.mark.parametrize("n_volts", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_rates_and_steps_may_differ_by_row(n_volts):
    """Against all paths through the sub-steps of rows, and differences of their sum; in storage, too; where rows differ
    and where few do, in which case they are known."""
    beside, values = by_row_data(80)
    if n_volts is not None:
        beside["volt"] = np.round(beside["volt"] + 0.5) - 0.4
    rates, mean, sd = np.array([3.0, 5.0, 0.7]), np.array([0.0, 1.0]), np.array([0.3, 0.4])
    paths = np.array(list(itertools.product(range(2), repeat=4)))

    def log_likelihood(rates):
        message, total = np.array([0.5, 0.5]), 0.0
        for t, value in enumerate(values):
            up, down = rates[0] * beside["conc"][t], rates[1] * np.exp(rates[2] * beside["volt"][t])
            generator = np.array([[-up, up], [down, -down]]) * beside["wait"][t]
            half, whole = expm(generator / 8), expm(generator / 4)
            weights = np.prod(whole[paths[:, :-1], paths[:, 1:]], axis=1)
            weights = weights * stats.norm.pdf(value, mean[paths].mean(axis=1), np.sqrt((sd[paths] ** 2).mean(axis=1)))
            message = message @ np.einsum("ip,p,pj->ij", half[:, paths[:, 0]], weights, half[paths[:, -1]])
            total, message = total + np.log(message.sum()), message / message.sum()
        return total

    data, params = lh.open_data(values, covariates=beside), {"rates": rates, "mean": mean, "sd": sd}
    one = model(4, BY_ROW)
    again = model_from_config(json.loads(json.dumps(model_to_config(one.resolve(data)))))
    assert len(again.transitions.known) == (0 if n_volts is None else 16)  # 12, and zeros
    for each in (one, again):
        assert lh.log_likelihood(each, params, data) == pytest.approx(log_likelihood(rates), rel=1e-10)
    slope = lh.gradient(again, params, data, prior=False)["transition"]
    scale = np.array([rates[0], rates[1], 1.0 / beside["volt"].std()])  # of the parameter by its coordinates
    for index, unit in enumerate(np.eye(3)):
        high, low = (log_likelihood(rates + sign * 1e-5 * scale * unit) for sign in (1, -1))
        assert slope[index] == pytest.approx((high - low) / 2e-5, rel=1e-5)


def test_rows_that_a_model_has_not_met_count_in_full():
    beside, values = by_row_data(80)
    one, params = model(None, lh.Rates("C <-> O", dt="wait")), {**PARAMS, "rates": [3.0, 5.0]}
    met, other = (lh.open_data(values, covariates={"wait": beside["wait"] * factor}) for factor in (1.0, 1.5))
    stranger = lh.log_likelihood(one.resolve(met), params, other)
    assert stranger == pytest.approx(lh.log_likelihood(one, params, other), rel=1e-12)
    assert abs(stranger - lh.log_likelihood(one, params, met)) > 0.1


@pytest.mark.slow
def test_everything_agrees_with_all_paths_where_steps_differ():
    beside, values = by_row_data(6)
    values[2] = np.nan
    data = lh.open_data(values, covariates={"wait": beside["wait"]}, lengths=[4, 2])
    lh.testing.check_coherence(model(3, lh.Rates("C <-> O", dt="wait")), PARAMS, data)


def test_steps_that_lead_one_way_have_gradients():
    """No frame leads from 2 to 1, and none has shares there."""
    one = model(3, lh.Rates("1 -> 2", dt=0.5))
    params, values = {**PARAMS, "rates": np.array([0.6])}, np.array([0.0, 0.1, 0.4, 1.0])
    slope = lh.gradient(one, params, values, prior=False)
    high, low = (lh.log_likelihood(one, {**params, "rates": [0.6 * np.exp(sign * 1e-5)]}, values) for sign in (1, -1))
    assert slope["transition"][0] == pytest.approx((high - low) / 2e-5, rel=1e-6)


def test_it_is_stored():
    for given in (model(5), model(None), model(5, CHAIN, levels=(0, 0, 1)), model(2, TWO, lh.Poisson())):
        config = json.loads(json.dumps(model_to_config(given.resolve(np.arange(20)))))
        again = model_from_config(config)
        assert model_to_config(again) == config and repr(again) == repr(given.resolve(np.arange(20)))
        assert again.emission.moves.terms == given.transitions.terms


def test_pairs_of_states_are_told_apart_by_their_order():
    """In a ring that turns one way: a frame between two states of a reversible scheme looks the same backwards."""
    ring = lh.Rates("1 <-> 2 <-> 3 <-> 1", dt=0.1)
    rates = {"1 -> 2": 9.0, "2 -> 1": 0.5, "2 -> 3": 8.0, "3 -> 2": 0.4, "3 -> 1": 7.0, "1 -> 3": 0.3}
    one = model(4, ring)
    complete = one.validate({**FAST, "rates": np.array([rates[term] for term in ring.terms])})

    def law(path):
        return stats.norm(np.mean(FAST["mean"][path]), np.sqrt(np.mean(FAST["sd"][path] ** 2)))

    with jax.enable_x64(True):
        generator = np.asarray(jax.jit(ring.generator)(complete["rates"]))
        params = {name: jnp.asarray(each) for name, each in complete.items()}
        rows = Rows(np.array([[0.3]]), np.ones((1, 1), bool))
        density = np.exp(np.asarray(jax.jit(one.emission.log_likelihoods)(params, rows)))[0]
        below = np.asarray(jax.jit(one.emission.cdf_of_rows)(params, rows)[0])[0].reshape(3, 3)
    for found, name in ((density, "pdf"), (below, "cdf")):
        joint = by_all_paths(
            ring, generator, (0, 1, 2), 4, 0.3, lambda value, path, n=name: getattr(law(path), n)(value)
        )
        np.testing.assert_allclose(found * complete["transition"], joint, rtol=1e-9)
        assert np.abs(found - found.T).max() > 0.05


@pytest.mark.parametrize(("inner", "waits"), [(None, [0.5]), (lh.Poisson(), [0.5]), (None, [0.1, 2.0, 0.4])])
def test_residuals_are_those_of_one_step_predictions(inner, waits):
    one = model(2, emission=inner)
    params = PARAMS if inner is None else {"rates": RATES, "rate": np.array([2.0, 9.0])}
    sequences = [lh.simulate(one, params, n, seed=n)[1] for n in (60, 1, 40)]
    complete, data, beside = one.validate(params), open_data(sequences), np.resize(waits, 101)
    if len(waits) > 1:  # frames that do not last alike
        data = open_data(sequences, covariates={"wait": beside})
        one, data = model(2, lh.Rates("1 <-> 2", dt="wait")).meet(data)
    left = residuals(one, params, data, path=DrawnPath(one.resolve(data), params, data))
    at, below, given = 0, [], DrawnPath(one.resolve(data), params, data).states
    for values in sequences:
        state = complete["initial"]
        for row, value in enumerate(values[:, 0]):
            joint, chance = np.zeros((2, 2, 2))  # density and distribution function, with the state at the end
            all_of, whole, half = (expm(np.array([[-2.0, 2.0], [1.0, -1.0]]) * beside[at] / n) for n in (1, 2, 4))
            for path in itertools.product(range(2), repeat=2):
                weight = np.outer(half[:, path[0]], half[path[1]]) * whole[path]
                if inner is None:
                    sd = np.sqrt(np.mean(PARAMS["sd"][list(path)] ** 2))
                    law = stats.norm(np.mean(PARAMS["mean"][list(path)]), sd)
                    joint, chance = joint + weight * law.pdf(value), chance + weight * law.cdf(value)
                else:
                    law = stats.poisson(np.mean(params["rate"][list(path)]))
                    joint, chance = joint + weight * law.pmf(value), chance + weight * law.cdf(value)
            below.append(state @ chance @ np.ones(2))
            if inner is None:
                assert left.values[at, 0] == pytest.approx(stats.norm.ppf(below[-1]), abs=1e-5)
                pair = (given[at - 1], given[at])
                own = stats.norm.ppf(chance[pair] / all_of[pair]) if row else np.nan
                assert left.given_state[at, 0] == pytest.approx(own, abs=1e-5, nan_ok=True)
            else:  # spread over the step of the distribution function
                assert left.values[at, 0] <= stats.norm.ppf(below[-1]) + 1e-6
            state, at = state @ joint / (state @ joint).sum(), at + 1
    assert len(waits) > 1 or stats.kstest(left.values[:, 0], "norm").pvalue > 0.01


@pytest.mark.slow
def test_rates_are_found_and_judged(tmp_path):
    """Half of all dwell times are shorter than three frames: without the average within frames rates are far off."""
    one, moves = model(4), {"rates": np.array([0.5, 0.4])}
    _, values = lh.simulate(model(32), {**PARAMS, **moves}, 2000, seed=1)
    posterior = lh.sample(one, values, draws=250, chains=2, seed=1, progress=False)
    table = posterior.rates()
    assert np.all(np.abs(table["mean"] - moves["rates"]) < 4 * table["sd"]) and np.all(table["sd"] < 0.1)
    assert posterior.diagnose(values).kind in ("trust", "run longer")
    posterior.save(tmp_path / "run")
    again = lh.load(tmp_path / "run")
    np.testing.assert_array_equal(again.draws["rates"], posterior.draws["rates"])
    assert again.decode(values).shape == (2000,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lh.HMM(2, lh.FrameAverage()), r"needs transitions=Rates\(...\), got Transitions\."),
        (lambda: lh.FrameAverage(substeps=0), "substeps must be"),
        (lambda: lh.FrameAverage(lh.Gaussian(dim=2)), "FrameAverage must be of one feature with a mean or a rate"),
        (lambda: model(2, levels=(0, 1, 1)), r"levels must be one for each of 2 states, got \(0, 1, 1\)."),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ModelError, match=message):
        make()
