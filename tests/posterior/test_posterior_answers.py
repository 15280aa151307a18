"""Paths, probabilities, dwell times and events, against enumeration and closed forms."""

import numpy as np
import pytest
from scipy import stats

from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.posterior.posterior import Posterior
from longhmm.testing import enumerate_paths
from posterior.fakes import chains_of, gaussian_model, known_states, small_posterior

LEVELS = ["level", "level_lower", "level_upper"]
DATA = [np.array([0.3, -1.0, 2.2, np.nan, 1.9]), np.array([-2.0, 0.4, 0.1])]


@pytest.fixture(scope="module")
def posterior():
    return small_posterior(gaussian_model(3))


def enumerated(params, data=DATA):
    """Every answer at given parameters, one result per sequence."""
    found = []
    for values in data:
        logs = stats.norm.logpdf(values[:, None], params["mean"], 1.0)
        found.append(enumerate_paths(params["initial"], params["transition"], np.where(np.isnan(logs), 0.0, logs)))
    return found


def test_decode_at_the_posterior_mean_and_per_draw(posterior):
    expected = np.concatenate([each.best_path for each in enumerated(posterior.mean_params())])
    assert posterior.decode(DATA).tolist() == expected.tolist()
    by_draw = posterior.decode(DATA, draws=6)
    for path, params in zip(by_draw, posterior.iterate(6), strict=True):
        assert path.tolist() == np.concatenate([each.best_path for each in enumerated(params)]).tolist()
    assert len({tuple(path) for path in by_draw.tolist()}) > 1


@pytest.mark.parametrize(("causal", "field"), [(False, "gamma"), (True, "filtered")])
def test_probabilities_are_averaged_over_draws(posterior, tmp_path, causal, field):
    expected = np.mean(
        [np.concatenate([getattr(each, field) for each in enumerated(params)]) for params in posterior.iterate(6)],
        axis=0,
    )
    found = posterior.state_probabilities(DATA, draws=6, causal=causal)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert found.dtype == np.float32
    on_disk = posterior.state_probabilities(DATA, draws=6, causal=causal, out=tmp_path / "p.npy")
    assert isinstance(on_disk, np.memmap)
    assert np.array_equal(np.load(tmp_path / "p.npy"), found)


def test_a_place_for_the_result_that_does_not_fit_is_refused(posterior):
    with pytest.raises(DataError, match=r"float32 array of shape \(8, 3\)"):
        posterior.state_probabilities(DATA, out=np.zeros((8, 3)))
    with pytest.raises(DataError, match="npy"):
        posterior.state_probabilities(DATA, out="p.csv")


def test_dwell_times_of_a_known_posterior():
    known = known_states()
    posterior = known.posterior(known.draw(4, 4000))
    table = posterior.dwell(rate=100.0)
    for state in range(2):
        leaving = stats.beta(known.counts[state, 1 - state], known.counts[state, state])
        assert table.loc[state, "dwell_lower"] == pytest.approx(1 / leaving.ppf(0.95), rel=0.01)
        assert table.loc[state, "dwell_upper"] == pytest.approx(1 / leaving.ppf(0.05), rel=0.01)
        total = known.counts[state].sum()
        assert table.loc[state, "dwell"] == pytest.approx((total - 1) / (known.counts[state, 1 - state] - 1), rel=0.005)
        assert table.loc[state, "dwell_s"] == pytest.approx(table.loc[state, "dwell"] / 100.0)
    assert table["stationary"].sum() == pytest.approx(1.0)
    leave = 1 / table["dwell"]
    assert table.loc[0, "stationary"] == pytest.approx(leave[1] / leave.sum(), rel=0.01)
    assert (table["stationary_lower"] < table["stationary"]).all()


def test_occupancy_is_the_share_of_the_data(posterior):
    table = posterior.dwell(data=DATA)
    expected = [
        np.concatenate([each.gamma for each in enumerated(params)]).mean(axis=0) for params in posterior.iterate(6)
    ]
    np.testing.assert_allclose(table["occupancy"], np.mean(expected, axis=0), atol=1e-9)
    np.testing.assert_allclose(table["occupancy_upper"], np.max(expected, axis=0), atol=1e-9)
    with pytest.raises(ModelError, match="rate"):
        posterior.dwell(rate=-1.0)


def test_a_state_that_is_never_left_lasts_for_ever():
    model = gaussian_model(2, transition_prior=np.array([[1.0, 1.0], [0.0, 1.0]]))
    transition = np.array([[0.75, 0.25], [0.0, 1.0]])
    natural = {"transition": np.tile(transition, (1, 4, 1, 1)), "mean": np.zeros((1, 4, 2))}
    table = Posterior.from_chains(model, chains_of(model, natural)).dwell()
    assert table["dwell"].tolist() == table["dwell_upper"].tolist() == [pytest.approx(4.0), np.inf]
    assert table["stationary"].tolist() == pytest.approx([0.0, 1.0], abs=1e-9)


def test_events(posterior):
    path = np.array([0, 0, 2, 2, 1, 1, 1, 0])
    table = posterior.events(DATA, rate=2.0, path=path)
    assert list(table.columns) == ["sequence", "start", "end", "start_s", "end_s", "state", *LEVELS]
    rows = table[["sequence", "start", "end", "state"]].to_numpy().tolist()
    # The visit to state 1 is cut where the second sequence begins.
    assert rows == [[0, 0, 2, 0], [0, 2, 4, 2], [0, 4, 5, 1], [1, 0, 2, 1], [1, 2, 3, 0]]
    assert table["start_s"].tolist() == [0.0, 1.0, 2.0, 0.0, 1.0]
    np.testing.assert_allclose(table["level"], posterior.mean_params()["mean"][table["state"]])
    assert "start_s" not in posterior.events(DATA, path=path)
    with pytest.raises(DataError, match="one state for each of 8"):
        posterior.events(DATA, path=path[:3])


def test_events_follow_the_decoded_path(posterior):
    table = posterior.events(open_data(DATA[1]))
    rebuilt = np.repeat(table["state"], table["end"] - table["start"])
    assert rebuilt.tolist() == posterior.decode(DATA[1]).tolist()
