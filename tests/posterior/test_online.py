"""Answers as data arrive: equal to those of a filter and a smoother that have all of it."""

import json

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from across.test_dependent_rows import MOVED, MOVED_PARAMS, Edges, certain, moved_data
from longhmm.backends.stream import stream
from longhmm.errors import DataError, ImpossibleObservationError, ModelError
from longhmm.posterior.posterior import Posterior
from posterior.fakes import chains_of, small_posterior

GAUSSIAN = lh.HMM(3, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 10.0)))
SWINGS = lh.HMM(2, lh.AR(lags=2, intercept=dist.Normal(0, 5), phi=dist.Normal(0, 1), sd=dist.HalfNormal(2)))
SWINGS_PARAMS = {
    "transition": np.array([[0.95, 0.05], [0.1, 0.9]]),
    "intercept": np.array([0.0, 2.0]),
    "phi": np.array([[0.7, -0.2], [0.3, 0.2]]),
    "sd": np.array([1.0, 0.7]),
}
EDGES_PARAMS = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "loc": np.array([0.0, 2.0]), "jump": [1.0, -1.0]}
FILTERED = lh.Coloured(
    "ar", 1, common=True, response=[0.6, 1.0], mean=dist.Normal(0, 5), sd=dist.HalfNormal(2), phi=dist.Normal(0, 0.3)
)


def with_gaps(y, seed=0):
    y = np.array(y, np.float64)
    y[np.random.default_rng(seed).random(len(y)) < 0.1] = np.nan
    y[: len(y) // 4][-20:] = np.nan
    return y


def gaussian():
    posterior = small_posterior(GAUSSIAN)
    return posterior, with_gaps(lh.simulate(GAUSSIAN, posterior.mean_params(), 300, seed=4)[1])


def moved():
    return certain(MOVED, MOVED_PARAMS), moved_data(300)


def chained():
    return certain(SWINGS, SWINGS_PARAMS), with_gaps(lh.simulate(SWINGS, SWINGS_PARAMS, 300, seed=2)[1])


def edges():
    return certain(lh.HMM(2, Edges()), EDGES_PARAMS), np.random.default_rng(6).normal(1, 2, 300)


def remembering():
    """A chain whose states remember the one before them."""
    model = lh.HMM(2, FILTERED)
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "mean": [0.0, 3.0], "sd": [1.0], "phi": [0.4]}
    return certain(model, params), with_gaps(lh.simulate(model, params, 300, seed=3)[1])


CASES = {"gaussian": gaussian, "covariates": moved, "lags": chained, "pairs of states": edges, "memory": remembering}


def batch(posterior, data, draws=20, causal=False):
    """`(T, K)` float64: what a pass over all data gives, averaged over draws."""
    sequences = posterior.model.opened(data)
    found = [
        np.concatenate([own.probabilities for own in stream(posterior.model, each, sequences, forward_only=causal)])
        for each in posterior.iterate(draws)
    ]
    return np.mean(found, axis=0)


def pieces(posterior, data, sizes):
    """The same data a few rows at a time."""
    sequences, at, turn = posterior.model.opened(data), 0, 0
    while at < sequences.length:
        stop = min(at + sizes[turn % len(sizes)], sequences.length)
        yield sequences.part(np.array([at, stop]))
        at, turn = stop, turn + 1


def followed(posterior, data, lag, sizes=(1, 7, 90)):
    live = posterior.online(lag=lag)
    updates = [live.update(piece) for piece in pieces(posterior, data, sizes)] + [live.finish()]
    assert [each.start for each in updates] == np.cumsum([0] + [len(each.filtered) for each in updates])[:-1].tolist()
    assert [each.settled for each in updates] == np.cumsum([0] + [len(each.smoothed) for each in updates])[:-1].tolist()
    return (np.concatenate([getattr(each, name) for each in updates]) for name in ("filtered", "smoothed"))


@pytest.mark.parametrize("case", CASES)
def test_rows_are_filtered_and_smoothed_as_by_passes_over_all_data(case):
    posterior, data = CASES[case]()
    filtered, smoothed = followed(posterior, data, lag=9)
    np.testing.assert_allclose(filtered, batch(posterior, data, causal=True), atol=1e-10)
    whole = batch(posterior, data)
    assert smoothed.shape == whole.shape
    np.testing.assert_allclose(smoothed[-9:], whole[-9:], atol=1e-10)  # the end has seen all there is
    assert np.abs(smoothed - whole).max() > 1e-6  # which rows before it have not
    sequences = posterior.model.opened(data)
    for row in (5, 200):
        seen = sequences.part(np.array([0, row + 10]))
        np.testing.assert_allclose(smoothed[row], batch(posterior, seen)[row], atol=1e-10)


@pytest.mark.parametrize("case", ["gaussian", "memory"])
def test_a_lag_as_long_as_the_data_gives_the_smoother(case):
    posterior, data = CASES[case]()
    _, smoothed = followed(posterior, data, lag=300, sizes=(300,))
    np.testing.assert_allclose(smoothed, batch(posterior, data), atol=1e-10)


def test_the_lag_comes_from_how_fast_messages_forget():
    model = lh.HMM(2, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 10.0)))
    params = {"transition": np.array([[0.97, 0.03], [0.05, 0.95]]), "mean": np.array([0.0, 2.0])}
    posterior, y = certain(model, params), lh.simulate(model, params, 3000, seed=8)[1]
    live = posterior.online(y)
    assert 5 <= live.lag <= 60 and str(live.lag) in repr(live)
    assert posterior.online(y, tolerance=1e-6).lag > live.lag
    assert abs(posterior.online().lag - live.lag) <= 3  # from a simulation
    smoothed = np.concatenate([live.update(y).smoothed, live.finish().smoothed])
    changed = np.abs(smoothed - batch(posterior, y, draws=1)).sum(axis=1)
    assert np.mean(changed <= 1e-3) >= 0.94
    assert np.mean(np.abs(followed_by(posterior, y, live.lag // 3) - batch(posterior, y, 1)).sum(1) <= 1e-3) < 0.94


def followed_by(posterior, y, lag):
    live = posterior.online(lag=lag)
    return np.concatenate([live.update(y).smoothed, live.finish().smoothed])


def test_a_finished_sequence_leaves_nothing_behind():
    posterior, y = chained()
    live = posterior.online(lag=5)
    live.update(np.full(30, 4.0))
    live.finish()
    again = live.update(y)
    assert (again.sequence, again.start, again.settled) == (1, 0, 0)
    np.testing.assert_array_equal(again.filtered, posterior.online(lag=5).update(y).filtered)
    assert len(live.finish().smoothed) == 5 and len(live.finish().smoothed) == 0


@pytest.mark.parametrize("case", CASES)
def test_what_was_saved_goes_on_identically(case, tmp_path):
    posterior, data = CASES[case]()
    first, *others = pieces(posterior, data, (50,))
    live = posterior.online(lag=9)
    live.update(first)
    live.save(tmp_path / "live.json")
    json.loads((tmp_path / "live.json").read_text(), parse_constant=pytest.fail)  # plain JSON, without infinities
    restored = posterior.online(restore=tmp_path / "live.json")
    assert (restored.lag, restored.rows, restored.sequence) == (9, 50, 0)
    for piece in others:
        one, other = live.update(piece), restored.update(piece)
        assert (one.start, one.settled) == (other.start, other.settled)
        np.testing.assert_array_equal(one.filtered, other.filtered)
        np.testing.assert_array_equal(one.smoothed, other.smoothed)
    np.testing.assert_array_equal(live.finish().smoothed, restored.finish().smoothed)


def test_files_that_are_not_its_own_are_refused(tmp_path):
    posterior, file = small_posterior(GAUSSIAN), tmp_path / "live.json"
    live = posterior.online(lag=3)
    live.update(1.0)
    live.save(file)
    with pytest.raises(DataError, match="another posterior"):
        small_posterior(GAUSSIAN, seed=5).online(restore=file)
    text = file.read_text()
    for damage in (text[:200], text.replace('"rows"', '"row"'), text.replace('"float64": "', '"float64": "A')):
        file.write_text(damage)
        with pytest.raises(DataError, match=r"does not hold what Online\.save wrote"):
            posterior.online(restore=file)
    file.write_text("{}")
    with pytest.raises(DataError, match="is not a file that"):
        posterior.online(restore=file)
    with pytest.raises(DataError, match="cannot be read"):
        posterior.online(restore=tmp_path / "none.json")


def test_what_is_refused_is_not_taken():
    model = lh.HMM(2, lh.Poisson(), transition_prior=1.0)
    natural = {"transition": np.full((1, 2, 2, 2), 0.5), "rate": np.tile([1.0, 8.0], (1, 2, 1))}
    posterior = Posterior.from_chains(model, chains_of(model, natural), {"has_states": True})
    live = posterior.online(lag=2)
    live.update([1, 9, 8])
    with pytest.raises(DataError, match="row 1"):
        live.update([3, -2])
    with pytest.raises(DataError, match="2; call finish"):
        live.update([np.array([1.0, 2.0]), np.array([3.0])])
    with pytest.raises(ModelError, match="feature"):
        live.update(np.ones((2, 2)))
    assert live.rows == 3
    expected = batch(posterior, [1, 9, 8, 0], causal=True)[-1:]
    np.testing.assert_allclose(live.update(0).filtered, expected, atol=1e-12)


def test_an_impossible_row_is_named():
    stays = {0: [1.0, 0.0], 1: [0.0, 1.0]}
    model = lh.HMM(2, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 5.0)), fixed_rows=stays, initial=[1.0, 0.0])
    posterior = certain(model, {"transition": np.eye(2), "mean": np.array([0.0, 9.0])})
    live = posterior.online(lag=2)
    with pytest.raises(ImpossibleObservationError, match="row 1"):
        live.update(lh.open_data([0.0, 9.0], states=[-1, 1]))
    assert live.rows == 0


def test_covariates_need_data_for_the_lag():
    with pytest.raises(ModelError, match="lag must be given"):
        certain(MOVED, MOVED_PARAMS).online()
