"""The way to the mode: what counts as another one."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.progress import Bar
from longhmm.samplers import mode


@pytest.fixture(scope="module")
def climbs():
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "rate": np.array([1.0, 8.0])}
    data = open_data(lh.simulate(model, params, 600, seed=0)[1])
    return model.resolve(data), data, params


def test_the_same_mode_with_its_states_in_another_order_does_not_compete(climbs, monkeypatch):
    model, data, params = climbs
    order = [1, 0]
    turned = {"transition": params["transition"][np.ix_(order, order)], "rate": params["rate"][order]}
    monkeypatch.setattr(mode, "initial_params", lambda *_, **__: [params, turned])
    (best,) = mode.local_optima(model, data, data, None, 2, 0, Bar(False))
    assert best.params["rate"][0] < best.params["rate"][1]


def test_another_place_competes(climbs, monkeypatch):
    model, data, params = climbs
    alike = {"transition": np.full((2, 2), 0.5), "rate": np.array([3.0, 3.0])}
    monkeypatch.setattr(mode, "initial_params", lambda *_, **__: [params, alike])
    best, other = mode.local_optima(model, data, data, None, 2, 0, Bar(False))
    assert other.log_posterior < best.log_posterior - 10
    assert mode.contenders([best, other]) == [best]


def test_a_newton_step_that_leaves_all_sense_is_shortened(climbs, monkeypatch):
    """As steps into the void do: parameters overflow, and checking them fails."""
    model, data, params = climbs
    here = lh.unconstrain(model, {**params, "rate": np.array([1.1, 7.5])})
    steps = (model, here, data, Bar(False))
    wanted, real, asked = mode._newton(*steps), mode.exact, []

    def sometimes(*given, **options):
        asked.append(1)
        if len(asked) == 2:  # the first trial
            raise ModelError("params['rate'] must be positive, got inf.")
        return real(*given, **options)

    monkeypatch.setattr(mode, "exact", sometimes)
    found = mode._newton(*steps)
    assert found.log_posterior == pytest.approx(wanted.log_posterior, abs=1e-2) and len(asked) > 2


def test_the_best_of_many_short_climbs_go_on(climbs, monkeypatch):
    """The only good start comes last of ten."""
    model, data, params = climbs
    alike = 9 * [{"transition": np.full((2, 2), 0.5), "rate": np.array([3.0, 3.0])}]
    monkeypatch.setattr(mode, "initial_params", lambda *_, restarts, **__: [*alike, params][-restarts:])
    best = mode.local_optima(model, data, data, None, 10, 0, Bar(False))[0]
    np.testing.assert_allclose(best.params["rate"], [1.0, 8.0], atol=0.6)


def test_no_more_starts_are_followed_where_the_first_ones_agree(climbs, monkeypatch):
    model, data, params = climbs
    alike = {"transition": np.full((2, 2), 0.5), "rate": np.array([3.0, 3.0])}
    followed, real = [], mode.settled
    monkeypatch.setattr(mode, "settled", lambda *given: followed.append(1) or real(*given))
    for starts, expected in (([params] * 10, mode.LEAST), ([params] * 3 + [alike] * 7, 10)):
        monkeypatch.setattr(mode, "initial_params", lambda *_, starts=starts, **__: starts)
        monkeypatch.setattr(mode, "EM_STEPS", 0)  # which would bring them together
        followed.clear()
        best = mode.local_optima(model, data, data, None, 10, 0, Bar(False))[0]
        assert len(followed) == expected
        np.testing.assert_allclose(best.params["rate"], [1.0, 8.0], atol=0.6)


def test_the_climb_reaches_the_mode_where_a_mark_never_occurs():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(0, 2, 400), 50)
    rows = (rng.random((len(states), 3)) < np.array([[0.0, 0.1, 0.3], [0.9, 0.6, 0.2]])[states]).astype(float)
    data = lh.open_data(rows)
    model = lh.HMM(n_states=2, emission=lh.Bernoulli(dim=3)).resolve(data)
    found = mode.find_mode(model, data, seed=0)
    assert found.decrement < 0.1
    probs = np.sort(lh.constrain(model, found.coordinates)["probs"][:, 0])
    # In coordinates the mode of a flat prior is (0 + 1) / (n + 2).
    np.testing.assert_allclose(probs[0], 1 / ((states == 0).sum() + 2), rtol=0.2)


def test_the_climb_reaches_the_mode_where_a_state_is_silent():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(0, 2, 400), 50)
    data = lh.open_data(rng.poisson(np.array([0.0, 3.0])[states]))
    model = lh.HMM(n_states=2, emission=lh.Poisson()).resolve(data)
    found = mode.find_mode(model, data, seed=0)
    assert found.decrement < 0.1
    rates = np.sort(lh.constrain(model, found.coordinates)["rate"])
    assert 0 < rates[0] < 10 / (states == 0).sum() and abs(rates[1] - 3.0) < 0.1


def test_the_mode_is_reached_where_emissions_overlap_and_em_rests_on_a_saddle():
    """One label says little about its state here: EM crawls, and curvatures far from the mode are negative."""
    model = lh.HMM(2, lh.Categorical(4))
    probs = [[0.18, 0.507, 1e-4, 0.3129], [0.3159, 1e-4, 0.504, 0.18]]
    params = {"transition": [[0.44, 0.56], [0.56, 0.44]], "probs": probs}
    data = open_data(lh.simulate(model, params, 100_000, seed=1)[1])
    model = model.resolve(data)
    found = mode.find_mode(model, data, seed=0)
    near_the_truth = mode.settled(model, params, data).log_posterior
    assert found.decrement < 0.05
    assert found.log_posterior > near_the_truth - 0.05


def test_ascent_ends_at_the_top_of_a_ridge_and_survives_points_without_a_value():
    def ridge(point):
        if point[0] > 1.6:
            raise ModelError("params must be finite.")
        across, along = point[1] - point[0] ** 2, 1.0 - point[0]
        slope = np.array([400 * across * point[0] + 2 * along, -200 * across])
        return -100 * across**2 - along**2, slope

    unit = np.eye(2) / 100
    end = mode.ascend(ridge, np.array([-1.2, 1.0]), factor=unit, tolerance=1e-6, steps=200)
    np.testing.assert_allclose(end, [1.0, 1.0], atol=1e-3)


def test_optima_that_a_part_cannot_tell_apart_are_compared_on_more_data(climbs, monkeypatch):
    model, data, params = climbs
    other = {**params, "rate": np.array([2.0, 5.0])}
    far = {**params, "rate": np.array([0.1, 0.2])}
    optima = [mode.Optimum(-100.0, params), mode.Optimum(-110.0, other)]
    optima.append(mode.Optimum(-150.0, far))
    assert [each.log_posterior for each in mode.contenders(optima)] == [-100.0, -110.0]
    values = {1.0: -1000.0, 2.0: -900.0}
    monkeypatch.setattr(mode, "settled", lambda model, at, stage: mode.Optimum(values[float(at["rate"][0])], at))
    best, second = mode.again(model, optima[:2], data, Bar(False))
    assert best.params is other and second.params is params
    assert mode.again(model, optima[:1], data, Bar(False))[0] is optima[0]
