"""Dwell times: silent on Markov chains at the stated rate, loud on visits of another length."""

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm
from longhmm.data.sequences import open_data
from longhmm.model.emissions.gaussian import Gaussian
from longhmm.model.emissions.tied import Tied
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.model.transitions.durations import Durations
from longhmm.posterior.diagnostics import drawn_path
from longhmm.posterior.diagnostics import dwell_times as module
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.dwell_times import (
    DwellTimes,
    dwell_times,
    exits,
    judge,
    judge_dwell_times,
    other_durations,
)
from longhmm.posterior.events import complete_visits, dwell_histogram
from posterior.fakes import gaussian_model
from testdata.semi_markov import visits_of_given_lengths


def levels(separation=4.0, stays=(0.95, 0.9)):
    """Two Gaussian states of unit variance and what a fit finds where dwell times have these means."""
    transition = np.array([[stays[0], 1 - stays[0]], [1 - stays[1], stays[1]]])
    return gaussian_model(), {"transition": transition, "mean": np.array([0.0, separation])}


def visits(*given, **options):
    return dwell_times(DrawnPath(*given, **options))


def seldom_small(p_values):
    small = sum(each < 0.1 for each in p_values)
    return stats.binomtest(small, len(p_values), 0.1, alternative="greater").pvalue > 1e-3


def cut(*lengths):
    """Sequences of these lengths, whatever they hold."""
    return open_data(np.zeros(sum(lengths)), lengths=lengths)


def chain(rng, transition, length):
    steps, path = transition.cumsum(axis=1), np.empty(length, int)
    path[0] = rng.integers(len(transition))
    for t, uniform in enumerate(rng.random(length - 1)):
        path[t + 1] = min(np.searchsorted(steps[path[t]], uniform), len(transition) - 1)
    return path


def test_departures_are_counted_by_age_and_never_across_sequences():
    model, params = levels()
    path = np.array([0, 0, 1, 1, 1, 0, 1, 1])
    found = exits(model, model.validate(params), path, cut(5, 3), np.ones(8, bool))
    np.testing.assert_array_equal(found.level, [0, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(found.age, [1, 2, 1, 2, 1, 1])
    np.testing.assert_array_equal(found.left, [False, True, False, False, True, False])
    np.testing.assert_array_equal(found.visit, [1, 1, 2, 2, 3, 4])
    np.testing.assert_allclose(found.chance, np.where(found.level == 0, 0.05, 0.1))
    later = exits(model, model.validate(params), path, cut(5, 3), np.arange(8) >= 2)
    np.testing.assert_array_equal(later.age, found.age[2:])


def test_chances_to_leave_a_shared_level_are_those_of_all_paths():
    """By enumeration: `P(level changes | levels so far)`, over the states that could be behind them."""
    transition = np.array([[0.7, 0.2, 0.1], [0.05, 0.8, 0.15], [0.3, 0.1, 0.6]])
    emission = Tied(Gaussian(mean=dist.Normal(0.0, 10.0), sd=1.0), (0, 0, 1))
    model = HMM(3, emission, initial=[0.5, 0.2, 0.3])
    params = model.validate({"transition": transition, "mean": np.array([0.0, 5.0])})
    path = np.array([0, 1, 1, 2, 0, 0, 2, 2, 1])
    found = exits(model, params, path, cut(6, 3), np.ones(9, bool))
    levels = np.array([0, 0, 1])
    expected = []
    for start, stop in ((0, 6), (6, 9)):
        behind = params["initial"] * (levels == levels[path[start]])
        for t in range(start, stop - 1):
            following = behind / behind.sum() @ transition
            expected.append(following[levels != levels[path[t]]].sum())
            behind = following * (levels == levels[path[t + 1]])
    np.testing.assert_allclose(found.chance, expected, rtol=1e-9)


def test_right_chains_are_called_wrong_at_the_stated_rate():
    """Chains with fast, slow and rare states, in sequences some of which are shorter than a visit."""
    rng = np.random.default_rng(0)
    p_values, trends, widths = [], [], []
    for _ in range(150):
        n_states = rng.integers(2, 5)
        transition = rng.dirichlet(np.ones(n_states), n_states) * (1 - np.eye(n_states)) + 1e-3
        transition *= 10 ** rng.uniform(-2.2, -0.3, (n_states, 1)) / transition.sum(axis=1, keepdims=True)
        np.fill_diagonal(transition, 0.0)
        np.fill_diagonal(transition, 1 - transition.sum(axis=1))
        model = gaussian_model(n_states)
        params = model.validate({"transition": transition, "mean": np.arange(n_states)})
        lengths = rng.integers(20, 500, size=12)
        path = np.concatenate([chain(rng, transition, length) for length in lengths])
        rows = exits(model, params, path, cut(*lengths), np.ones(len(path), bool))
        found = [one for state in range(n_states) if (one := judge([rows], state)) is not None]
        p_values += [one.p_value for one in found]
        trends += [one.trend for one in found]
        widths += [one.interval for one in found]
    assert len(p_values) > 250
    for each in (p_values, trends):
        assert seldom_small(each) and np.mean(np.array(each) < 0.01) < 0.03
    assert np.median(widths) == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize("separation", [4.0, 1.0])
def test_a_drawn_path_is_a_chain_however_well_it_is_known(separation):
    """Data that hardly tell states apart: the path is then mostly made up, and no less a draw of the chain."""
    model, params = levels(separation)
    found = []
    for seed in range(12):
        data = open_data(simulate(model, params, 4000, seed=seed)[1])
        found += visits(model, params, data, seed=seed)
    assert len(found) == 24 and seldom_small([one.p_value for one in found])
    assert seldom_small([one.trend for one in found])


@pytest.mark.parametrize(
    "lengths",
    [
        lambda rng, state: 1 + rng.negative_binomial(12, 12 / (12 + (29, 59)[state])),
        lambda rng, state: 50,
        lambda rng, state: 1 + int(rng.choice([2, 300], p=[0.8, 0.2]) * rng.exponential()),
    ],
    ids=["negative binomial", "always 50", "short or long"],
)
def test_visits_of_another_length_are_seen(lengths):
    y, path = visits_of_given_lengths(lengths, (0.0, 4.0), 20_000, seed=1)
    begins = np.append(np.flatnonzero(np.append(True, path[1:] != path[:-1])), len(path))
    runs = [np.diff(begins)[path[begins[:-1]] == state] for state in (0, 1)]
    model, params = levels(stays=[1 - 1 / each.mean() for each in runs])
    found = visits(model, params, open_data(y))
    assert [one.level for one in found] == [0, 1]
    for one, mine in zip(found, runs, strict=True):
        assert one.p_value < 1e-6 and one.size > 0.3
        # Relative to geometric dwell times of the same mean; drawn paths lose some of the shortest visits.
        wider = mine.std() / mine.mean() / np.sqrt(1 - 1 / mine.mean())
        assert one.interval == pytest.approx(wider, rel=0.25, abs=0.25)
        assert one.seen == pytest.approx(np.sum(mine > one.longer_than), rel=0.1, abs=2)
    details = {}
    (reason,) = judge_dwell_times(model, found, details)
    assert "do not last as the model says" in reason and "(and those to 1 more)" in reason
    assert "lh.Tied(lh.Gaussian(), levels=(0, " in reason and "times as wide" in reason
    assert details["dwell"] > 0.3 and details["dwell_of"].startswith("state ")


def test_small_departures_are_let_pass_however_sure_they_are():
    sure = DwellTimes(1, p_value=1e-30, trend=0.5, size=0.05, interval=1.03, longer_than=8, seen=100, expected=90.0)
    assert judge_dwell_times(gaussian_model(), [sure], {}) == []
    assert judge_dwell_times(gaussian_model(), [sure._replace(size=0.2)], {})
    assert judge_dwell_times(gaussian_model(), [sure._replace(size=0.2, p_value=0.5, trend=1e-5)], {})
    unsure = sure._replace(size=0.4, p_value=0.0005)
    assert judge_dwell_times(gaussian_model(), [unsure, unsure._replace(p_value=0.3)], {}) == []


@pytest.mark.parametrize(("level", "states", "opens"), [(0, 6, ("O",)), (2, 6, ("O", "O2"))])
def test_channels_are_advised_another_state_of_each(level, states, opens):
    moves = longhmm.Channels(2, "C <-> O", dt=0.001)
    model = HMM(moves.n_states, longhmm.EquallySpaced(moves.levels), transitions=moves)
    off = DwellTimes(level, 1e-30, 0.5, 0.4, 0.6, 8, seen=100, expected=90.0, mean=12.3)
    (reason,) = judge_dwell_times(model, [off], {})
    line = reason.partition(": try ")[2].rpartition(", channels of one state more")[0]
    richer = eval(line, {"lh": longhmm})
    assert richer.n_states == states and richer.open_states == opens and "Tied" not in reason
    assert HMM(states, longhmm.EquallySpaced(richer.levels), transitions=richer).transitions.dt[0] == 0.001


def test_the_remedy_is_a_line_of_python_and_an_option():
    off = DwellTimes(1, 1e-30, 0.5, 0.4, 0.6, 8, seen=100, expected=90.0, mean=12.3)
    (reason,) = judge_dwell_times(gaussian_model(), [off], {})
    line = 'try transitions=lh.Durations("negative-binomial", phases=30), on the command line --durations '
    assert f"{line}negative-binomial:30, or lh.HMM(3, lh.Tied(" in reason
    found = other_durations(gaussian_model(), [off, off._replace(mean=3000.0)], off._replace(interval=1.5))
    assert (
        found == 'transitions=lh.Durations("phase-type", phases=2), on the command line --durations phase-type:2, or '
    )
    assert other_durations(gaussian_model(), [off._replace(mean=3000.0)], off) == ""  # neither brief nor long ones
    moves = HMM(2, Gaussian(), transitions=Durations())
    forbidden = HMM(3, Gaussian(), transition_prior=np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1.0]]))
    for other in (moves, forbidden, HMM(3, Tied(Gaussian(), (0, 1, 1)))):
        assert other_durations(other, [off], off) == ""


def test_all_ways_to_see_them_raise_the_stated_number_of_false_alarms(monkeypatch):
    """P-values that are uniform, of one level to twenty, with a rate that can be counted."""
    monkeypatch.setattr(module, "TOGETHER", 100 * module.TOGETHER)
    monkeypatch.setattr(module, "ALONE", 100 * module.ALONE)
    rng, model = np.random.default_rng(0), gaussian_model()
    for levels in (1, 2, 20):
        alarms = 0
        for _ in range(2000):
            p_values = rng.uniform(size=(levels, 2))
            found = [DwellTimes(level, *pair, 1.0, 1.0, 8, 120, 80.0) for level, pair in enumerate(p_values)]
            alarms += bool(judge_dwell_times(model, found, {}))
        assert 0.06 < alarms / 2000 < 0.115  # 10 %, less where two ways see the same, or no level can be named


def test_levels_that_are_off_together_are_seen():
    """Two p-values that alone are no evidence, over two levels, are some together."""
    each = DwellTimes(0, 0.5, 5e-4, 0.2, 1.3, 8, 120, 80.0)
    for off in (each, each._replace(p_value=5e-4, trend=0.5)):
        assert judge_dwell_times(gaussian_model(), [off, off._replace(level=1, p_value=0.5, trend=0.5)], {}) == []
        assert judge_dwell_times(gaussian_model(), [off, off._replace(level=1)], {})
        small = off._replace(size=0.09)
        assert judge_dwell_times(gaussian_model(), [small, small._replace(level=1)], {}) == []


def test_states_that_share_a_level_are_judged_together():
    """Two kinetic states on one level: dwell times as they should be, and not those of one state."""
    emission = Tied(Gaussian(mean=dist.Normal(0.0, 10.0), sd=1.0), (0, 1, 1))
    model = HMM(3, emission)
    transition = np.array([[0.95, 0.04, 0.01], [0.5, 0.5, 0.0], [0.01, 0.0, 0.99]])
    params = {"transition": transition, "mean": np.array([0.0, 4.0])}
    states, y = simulate(model, params, 30_000, seed=3)
    found = visits(model, params, open_data(y))
    assert [one.level for one in found] == [0, 1] and min(one.p_value for one in found) > 1e-3
    path = np.minimum(states, 1)
    left, spent = np.bincount(path[:-1][path[1:] != path[:-1]], minlength=2), np.bincount(path, minlength=2)
    one_each, fitted = levels(stays=1 - left / spent)
    wrong = visits(one_each, fitted, open_data(y))
    assert wrong[1].p_value < 1e-20 and wrong[0].p_value > 1e-3
    details = {}
    (reason,) = judge_dwell_times(one_each, wrong, details)
    assert "state 1 do not last" in reason and "levels=(0, 1, 1)" in reason


def test_states_that_are_hardly_ever_left_are_not_judged():
    model, params = levels(stays=(0.9999, 0.9999))
    assert visits(model, params, open_data(simulate(model, params, 2000, seed=0)[1])) == []
    alone = gaussian_model(1)
    data = open_data(np.random.default_rng(0).normal(size=200))
    assert visits(alone, {"transition": np.ones((1, 1)), "mean": np.zeros(1)}, data) == []


def test_a_part_of_long_data_stands_for_all_of_them(monkeypatch):
    monkeypatch.setattr(drawn_path, "MOST_ROWS", 10_000)
    model, params = levels()
    y = simulate(model, params, 60_000, seed=5)[1]
    right = visits(model, params, open_data(y))
    assert len(right) == 2 and min(one.p_value for one in right) > 1e-3
    path = np.zeros(len(y), int)
    found = exits(model, model.validate(params), path[:10_000], cut(*[1000] * 10), np.ones(10_000, bool))
    assert len(found.age) == 10_000 - 10


def test_dwell_histograms_count_complete_visits(known, posterior, table):
    found = dwell_histogram(posterior, table)
    whole = complete_visits(table)
    assert len(whole) == len(table) - 2
    for state, part in found.groupby("state"):
        mine = whole[whole["state"] == state]
        lengths = (mine["end"] - mine["start"]).to_numpy()
        assert part["count"].sum() == len(mine)
        for row in part.itertuples():
            assert row.count == ((lengths > row.lower) & (lengths <= row.upper)).sum()
        stay = 1 - np.asarray(posterior.draws["transition"])[..., state, 1 - state].reshape(-1)
        first = len(mine) * (1 - stay)  # visits of one sample
        assert part["expected"].iloc[0] == pytest.approx(first.mean())
        assert part["expected_lower"].iloc[0] == pytest.approx(np.quantile(first, 0.05))
        assert part["expected_upper"].iloc[0] == pytest.approx(np.quantile(first, 0.95))
        # The data come from the model: counts scatter around what it expects.
        pooled = np.sum((part["count"] - part["expected"]) ** 2 / np.maximum(part["expected"], 1.0))
        assert pooled < len(part) + 4 * np.sqrt(2 * len(part))
    ratio = np.diff(np.log10(found[found["state"] == 0]["upper"].to_numpy()))
    assert ratio[-3:].max() < 0.2  # ten per decade, once whole numbers are dense enough
