"""The default sampler against posteriors that are known exactly, under real minibatch noise."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.posterior.draws import constrain_draws
from longhmm.run.chains import bulk_effective_size
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.samplers.contract import Start
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD, drifted, noise_factor, whitening
from longhmm.target.coordinates import Flat, constrain, unconstrain
from longhmm.target.target import StreamedPosterior
from samplers.targets import Prepared


def draw(model, data, seed=0, draws=1000, **options):
    sequences = lh.open_data(data, **options)
    run = Run(Request(model.resolve(sequences), sequences, ControlVariateSGLD(), draws=draws, seed=seed, spaced=True))
    return carry_out(run), run.tuned.found


def test_known_states_give_dirichlet_rows_and_a_normal_mean():
    """All states known: rows are Dirichlet(a + counts), means normal. Rare transitions are skewed on purpose."""
    rng = np.random.default_rng(0)
    transition = np.array([[0.9, 0.0997, 0.0003], [0.2, 0.75, 0.05], [0.1, 0.3, 0.6]])
    length = 30_000
    states = np.zeros(length, int)
    for t in range(1, length):
        states[t] = rng.choice(3, p=transition[states[t - 1]])
    y = rng.normal(np.array([-1.0, 0.0, 1.0])[states])
    model = lh.HMM(3, lh.Emission(dist.Normal, loc=dist.Normal(0.0, 10.0), scale=1.0))
    chains, found = draw(model, y, states=states, draws=1200)
    assert found.noise > 0.05, "the test must run under real minibatch noise"
    natural = constrain_draws(model, chains.coordinates)
    rows = natural["transition"]
    counts = np.zeros((3, 3))
    np.add.at(counts, (states[:-1], states[1:]), 1)
    for i in range(3):
        exact = dist.Dirichlet(1.0 + counts[i])
        mean, sd = np.asarray(exact.mean), np.sqrt(np.asarray(exact.variance))
        for j in range(3):
            size = bulk_effective_size(rows[:, :, i, j][..., None])[0]
            assert abs(rows[:, :, i, j].mean() - mean[j]) < 4 * sd[j] / np.sqrt(size)
            # The sampling sd of a standard deviation; exponential-like marginals have kurtosis up to nine.
            assert abs(rows[:, :, i, j].std() / sd[j] - 1) < 4 * np.sqrt(2.0 / size)
    locs = natural["loc"]
    for k in range(3):
        n, total = (states == k).sum(), y[states == k].sum()
        sd = 1 / np.sqrt(n + 0.01)
        size = bulk_effective_size(locs[:, :, k][..., None])[0]
        assert abs(locs[:, :, k].mean() - total * sd**2) < 4 * sd / np.sqrt(size)
        assert abs(locs[:, :, k].std() / sd - 1) < 4 * np.sqrt(0.5 / size)


def test_averaged_noise_is_exact_for_a_gaussian_and_compensates_gradient_noise():
    """The linear recursion in closed form: the stationary covariance is I whatever the step size and the noise."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    noise = root @ root.T / 4
    for step in (0.05, 0.2):
        injected = noise_factor(noise, step)
        # z' = (1 - h) z + h e + sqrt(2 h) C (xi + xi') / 2 as a linear system in (z, xi).
        keep = np.block([[(1 - step) * np.eye(3), np.sqrt(2 * step) / 2 * injected], [np.zeros((3, 6))]])
        enter = np.block(
            [[np.sqrt(2 * step) / 2 * injected, step * np.linalg.cholesky(noise)], [np.eye(3), np.zeros((3, 3))]]
        )
        covariance = np.zeros((6, 6))
        for _ in range(4000):
            covariance = keep @ covariance @ keep.T + enter @ enter.T
        np.testing.assert_allclose(covariance[:3, :3], np.eye(3), atol=1e-8)


def test_whitening_inverts_the_information():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(5, 5)) * np.logspace(0, 4, 5)
    information = root @ root.T + np.eye(5)
    factor = whitening(information)
    np.testing.assert_allclose(factor.T @ information @ factor, np.eye(5), atol=1e-8)


@pytest.mark.slow
def test_same_seed_same_draws():
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    _, counts = lh.simulate(model, params, length=30_000, seed=1)
    one, two = (draw(model, counts, seed=5, draws=20)[0] for _ in range(2))
    flat = Flat.like(one.mode)
    np.testing.assert_array_equal(flat.ravel_numpy(one.coordinates), flat.ravel_numpy(two.coordinates))
    chains = flat.ravel_numpy(one.coordinates)
    assert np.abs(chains[0] - chains[1]).max() > 1e-6  # and the chains of one run are not the same


@pytest.mark.slow
def test_data_in_a_file_give_the_same_draws(tmp_path):
    model = lh.HMM(2, lh.Emission(dist.Normal, loc=dist.Normal(0.0, 10.0), scale=1.0))
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "loc": [-1.0, 2.0]}
    _, y = lh.simulate(model, params, length=20_000, seed=1)
    np.save(tmp_path / "y.npy", y)
    found, reference = draw(model, tmp_path / "y.npy", draws=20)[0], draw(model, y, draws=20)[0]
    flat = Flat.like(found.mode)
    np.testing.assert_allclose(
        flat.ravel_numpy(found.coordinates), flat.ravel_numpy(reference.coordinates), rtol=2e-5, atol=2e-6
    )


def test_a_chain_far_out_in_the_tail_of_an_unseen_transition_comes_back():
    """There the gradient is minus the visits times the probability: an unlimited step would end where nothing moves."""
    states = np.tile([0, 1, 2], 4000)  # 0 -> 2 and others are never seen
    y = np.random.default_rng(3).normal(np.array([-1.0, 0.0, 1.0])[states])
    model = lh.HMM(3, lh.Emission(dist.Normal, loc=dist.Normal(0.0, 10.0), scale=1.0))
    sequences = lh.open_data(y, states=states)
    sampler = ControlVariateSGLD().tune(StreamedPosterior(model, sequences), Start(seed=0))
    found = sampler.found
    ready = Prepared(sampler, found.bind(model, sequences, {}))
    flat = Flat.like(found.mode)
    params = constrain(model, found.mode)
    rows = params["transition"].copy()
    rows[0, 2] *= np.exp(5.0)  # a hundred and fifty times its mean
    thrown = unconstrain(model, {**params, "transition": rows / rows.sum(axis=1, keepdims=True)})
    state = ready.init(jax.random.key(0), {name: value.astype(np.float32) for name, value in thrown.items()})
    for number in range(30):  # unlimited, it would still be 17 standard deviations away
        minibatch = ready.target.minibatch(jax.random.key(1000 + number))
        state, info = ready.step(jax.random.key(number), state, minibatch)
        assert bool(info.finite)
    offset = np.linalg.solve(
        np.asarray(found.factor, np.float64),
        flat.ravel_numpy({name: np.asarray(value) for name, value in state.coordinates.items()})
        - flat.ravel_numpy(found.mode),
    )
    assert np.abs(offset).max() < 7


def test_what_counts_as_drift():
    rng = np.random.default_rng(0)
    at_rest = rng.normal(size=(4, 100, 3))
    assert not drifted(at_rest, 2)
    skewed = np.log(rng.exponential(size=(4, 100, 3)))  # the most skewed coordinate there is, about its mode
    assert not drifted(skewed, 2)
    together = np.log(rng.exponential(size=(4, 100, 7))).sum(axis=2, keepdims=True) / np.sqrt(7)
    assert not drifted(together, 8)  # a whole row that was never seen, along its common direction
    assert drifted(at_rest + np.array([0.0, -2.0, 0.0]), 2)
    apart = at_rest + 3 * np.array([1, -1, 1, 1])[:, None, None]  # separate modes are another matter
    assert not drifted(apart, 2)


@pytest.mark.slow
def test_wide_windows_that_say_much_are_few_and_give_the_same_posterior():
    """States that stay long: a window says so much that four of them will do."""
    model = lh.HMM(2, lh.Gaussian())
    params = {"transition": [[0.998, 0.002], [0.003, 0.997]], "mean": [-0.4, 0.4], "sd": [1.0, 1.0]}
    y = lh.simulate(model, params, 1_000_000, seed=1)[1]
    chains, found = draw(model, y, draws=500)
    assert found.windows.count < 16 and found.step_size * found.noise / (2 - found.step_size) < 0.1001
    flat = Flat.like(found.mode)
    draws = flat.ravel_numpy(chains.coordinates).reshape(-1, flat.size)
    away = (draws - flat.ravel_numpy(found.mode)) @ np.linalg.inv(whitening(found.information)).T
    # 2,000 draws, at least half of them effective, of about a standard normal: a skewed one is a little off.
    np.testing.assert_allclose(away.mean(axis=0), 0.0, atol=0.15)
    np.testing.assert_allclose(away.std(axis=0), 1.0, atol=0.1)
