"""Whole runs on windows drawn by importance: the posterior is exact, and a run is the same run wherever it is."""

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.posterior.draws import constrain_draws
from longhmm.run import checkpoint
from longhmm.run.chains import bulk_effective_size
from longhmm.run.driver import Driver
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.samplers.contract import Start
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.target.target import StreamedPosterior

WINDOWS = lh.Windows(10, 16, lh.Importance())


def request(model, sequences, place=None, windows=WINDOWS, draws=60, thin=3):
    sampler, buffer = ControlVariateSGLD(), lh.FixedBuffer(10)
    settings = {"draws": draws, "thin": thin, "checkpoint": place}
    return Request(model.resolve(sequences), sequences, sampler, windows, buffer, **settings)


def run(asked):
    going = Run(asked)
    return carry_out(going), going.tuned.found


@pytest.fixture(scope="module")
def known():
    """All states known: rows are Dirichlet, means normal. The last state is there half a percent of the time."""
    rng = np.random.default_rng(0)
    transition = np.array([[0.9, 0.099, 0.001], [0.2, 0.799, 0.001], [0.2, 0.0, 0.8]])
    length = 30_000
    states = np.zeros(length, int)
    for t in range(1, length):
        states[t] = rng.choice(3, p=transition[states[t - 1]])
    y = rng.normal(np.array([-1.0, 0.0, 1.0])[states])
    model = lh.HMM(3, lh.Emission(dist.Normal, loc=dist.Normal(0.0, 10.0), scale=1.0))
    return model, y, states


@pytest.mark.slow  # weights are tried in tests/target, and the same posterior by windows that are all as likely
def test_means_and_standard_deviations_are_those_of_the_exact_posterior(known):
    model, y, states = known
    asked = request(model, lh.open_data(y, states=states), draws=1000, thin=None)
    chains, found = run(asked)
    start = Start(windows=lh.Windows(10, 16), buffer=asked.buffer)
    uniform = ControlVariateSGLD().tune(StreamedPosterior(asked.model, asked.sequences), start).found
    assert found.noise > 0.05, "the test must run under real minibatch noise"
    assert uniform.noise > 5 * found.noise, "and importance must have something to gain"
    assert found.step_size > 2 * uniform.step_size
    natural = constrain_draws(asked.model, chains.coordinates)
    counts = np.zeros((3, 3))
    np.add.at(counts, (states[:-1], states[1:]), 1)
    for i in range(3):
        exact = dist.Dirichlet(1.0 + counts[i])
        mean, sd = np.asarray(exact.mean), np.sqrt(np.asarray(exact.variance))
        for j in range(3):
            draws = natural["transition"][:, :, i, j]
            size = bulk_effective_size(draws[..., None])[0]
            assert abs(draws.mean() - mean[j]) < 4 * sd[j] / np.sqrt(size)
            # The sampling sd of a standard deviation; exponential-like marginals have kurtosis up to nine.
            assert abs(draws.std() / sd[j] - 1) < 4 * np.sqrt(2.0 / size)
    for k in range(3):
        draws, n, total = natural["loc"][:, :, k], (states == k).sum(), y[states == k].sum()
        sd = 1 / np.sqrt(n + 0.01)
        size = bulk_effective_size(draws[..., None])[0]
        assert abs(draws.mean() - total * sd**2) < 4 * sd / np.sqrt(size)
        assert abs(draws.std() / sd - 1) < 4 * np.sqrt(0.5 / size)


@pytest.fixture(scope="module")
def counts():
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.99, 0.01], [0.3, 0.7]], "rate": [1.0, 8.0]}
    return model, lh.simulate(model, params, length=20_000, seed=1)[1].astype(np.int32)


def test_resumed_draws_are_the_same_bit_for_bit(counts, tmp_path, monkeypatch):
    model, y = counts
    data = lh.open_data(y)
    whole = run(request(model, data, tmp_path / "whole"))[0].coordinates
    take = Driver._take
    blocks = []

    def interrupted(self, progressed, outcome, steps, record):
        take(self, progressed, outcome, steps, record)
        blocks.append(record and steps == 20 * 3)
        if sum(blocks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("longhmm.run.driver.block_size", lambda *_: 20 * 3)  # whatever the clock says
    monkeypatch.setattr(Driver, "_take", interrupted)
    cut = run(request(model, data, tmp_path / "cut"))[0].coordinates
    assert 0 < cut["rate"].shape[1] < 60
    monkeypatch.setattr(Driver, "_take", take)
    chains, found = run(request(model, data, tmp_path / "cut"))
    source = found.bind(model.resolve(data), data, {}).source
    assert source.unequal is not None and source.windows == WINDOWS
    for name, value in whole.items():
        np.testing.assert_array_equal(chains.coordinates[name], value)


def test_draws_do_not_depend_on_where_the_data_lie(counts, tmp_path, monkeypatch):
    monkeypatch.setattr("longhmm.data.sequences.IN_MEMORY", 0)  # as if the file were long
    model, y = counts
    np.save(tmp_path / "y.npy", y)

    def draws_of(data):
        posterior = lh.sample(
            model,
            data,
            sampler=lh.SGRLD(step_size=1e-3),
            windows=lh.Windows(3, 4, lh.Importance()),
            buffer=lh.FixedBuffer(5),
            init={"transition": [[0.99, 0.01], [0.3, 0.7]], "rate": [1.0, 8.0]},
            chains=2,
            draws=6,
            warmup=0,
            thin=2,
            progress=False,
        )
        return np.asarray(posterior.draws["rate"])

    mapped, held = draws_of(tmp_path / "y.npy"), draws_of(y)
    np.testing.assert_allclose(mapped, held, rtol=2e-4)  # the same windows and noise, summed in another order
    assert np.ptp(mapped) > 1e-3


def test_the_proposal_is_kept_with_a_run():
    assert checkpoint.from_plain(checkpoint.to_plain(WINDOWS)) == WINDOWS
