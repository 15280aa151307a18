"""Distribution functions from tables are those of every observation."""

import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.data.rows import Rows
from longhmm.data.source import Source
from longhmm.model.memory import unfold
from longhmm.posterior.diagnostics import cdf_tables
from longhmm.posterior.diagnostics.cdf_tables import ERROR, FEWEST, SAMPLE, distribution_functions, tables

TRANSITION = np.array([[0.9, 0.1], [0.2, 0.8]])
LOC, SCALE, RATE = np.array([-1.0, 2.0]), np.array([0.5, 1.5]), np.array([0.8, 9.0])
CONTINUOUS = {
    "gamma": (lh.Gamma(), {"concentration": RATE, "rate": SCALE}, stats.gamma(RATE, scale=1 / SCALE)),
    "student-t": (lh.StudentT(), {"df": RATE, "loc": LOC, "scale": SCALE}, stats.t(RATE, LOC, SCALE)),
    "gaussian": (lh.Gaussian(), {"mean": LOC, "sd": SCALE}, stats.norm(LOC, SCALE)),
    "tied": (lh.Tied(lh.StudentT(), [0, 1]), {"df": RATE, "loc": LOC, "scale": SCALE}, stats.t(RATE, LOC, SCALE)),
}
DISCRETE = {
    "poisson": (lh.Poisson(), {"rate": RATE}, stats.poisson(RATE)),
    "negative binomial": (
        lh.NegativeBinomial(),
        {"mean": RATE, "concentration": SCALE},
        stats.nbinom(SCALE, SCALE / (SCALE + RATE)),
    ),
}


def made(emission, params, monkeypatch, *, length=FEWEST, missing=()):
    """Tables of the rows, these, what evaluates them one by one, and at how many values tables did that."""
    params, model = {"transition": TRANSITION, **params}, lh.HMM(2, emission)
    values = np.asarray(lh.simulate(model, params, length, seed=5)[1], np.float64)
    values[list(missing)] = np.nan
    data = lh.open_data(values)
    model = model.resolve(data)
    _, model, complete = unfold(model, model.validate(params))
    evaluated, exact = [], cdf_tables._exact
    monkeypatch.setattr(cdf_tables, "_exact", lambda *given: evaluated.append(len(given[2].values)) or exact(*given))
    found, functions = cdf_tables.tables(model, complete, data), distribution_functions(model, complete, data)
    return found, values.reshape(length, -1), functions, sum(evaluated)


@pytest.mark.parametrize("family", CONTINUOUS)
def test_polynomials_are_as_good_as_the_function(family, monkeypatch):
    emission, params, known = CONTINUOUS[family]
    (table,), values, _, evaluated = made(emission, params, monkeypatch, missing=(3, 4, 100))
    assert 0 < evaluated < FEWEST / 4
    found = table.of_states(values[:, 0])
    told, seen = np.isfinite(found).all(axis=1), np.isfinite(values[:, 0])
    assert not told[~seen].any() and np.mean(told[seen]) > 0.9  # others lie far out, where there are few
    # At the ends of intervals the error is near its largest.
    np.testing.assert_allclose(found[told], known.cdf(values[told]), rtol=0, atol=2 * ERROR)


@pytest.mark.parametrize("family", CONTINUOUS)
def test_values_are_those_of_their_places(family, monkeypatch):
    (table,), values, _, _ = made(*CONTINUOUS[family][:2], monkeypatch)
    place, t = table.located(values[:, 0])
    assert (place >= 0).all() and (np.abs(t) <= 1).all()
    again = np.array([table.values(np.array([p]), np.array([at]))[0, 0] for p, at in zip(place[:500], t, strict=False)])
    np.testing.assert_allclose(again, values[:500, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("family", DISCRETE)
def test_counts_are_looked_up(family, monkeypatch):
    emission, params, known = DISCRETE[family]
    (table,), values, _, evaluated = made(emission, params, monkeypatch, length=2000, missing=(7,))
    assert 0 < evaluated < 2000 / 4
    seen = np.arange(2000) != 7
    for share in (0.0, 0.25):
        expected = share * known.cdf(values) + (1 - share) * known.cdf(values - 1)
        found = table.of_states(values[:, 0], np.full(2000, share))
        np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-9, atol=1e-12)
        assert np.isnan(found[7]).all()


def test_few_rows_are_evaluated_one_by_one(monkeypatch):
    emission, params, known = CONTINUOUS["gamma"]
    found, values, functions, evaluated = made(emission, params, monkeypatch, length=300)
    assert found is None and evaluated == 0
    (below,) = functions(Rows(values, np.ones(values.shape, bool)))
    np.testing.assert_allclose(below[:, :, 0], known.cdf(values), rtol=1e-9)


class Read(Source):
    """Values that can only be read in order, as from a file."""

    def __init__(self, values):
        self.name, self.values, (self.length, self.dim), self.dtype = "rows", values, values.shape, values.dtype

    def fetch(self, start, stop):
        return self.values[start:stop]


def test_values_that_are_read_have_the_tables_of_those_in_memory():
    """Of a sample of rows, and of features that need intervals of unlike width."""
    mean = np.stack([LOC, 20 * LOC], axis=1)
    params = {"transition": TRANSITION, "mean": mean, "covariance": np.tile(np.eye(2), (2, 1, 1))}
    model = lh.HMM(2, lh.Gaussian(2))
    values = np.asarray(lh.simulate(model, params, 3 * SAMPLE, seed=5)[1], np.float64)
    values[3 * np.arange(50), 1] = np.nan
    _, model, complete = unfold(model, model.validate(params))
    found, expected = (tables(model, complete, lh.open_data(each)) for each in (Read(values), values))
    assert len({table.shift for table in found}) == 2
    for each, other in zip(found, expected, strict=True):
        for own, same in zip(each, other, strict=True):
            np.testing.assert_array_equal(own, same)


def test_a_function_with_steps_has_no_table(monkeypatch):
    """Polynomials that never agree are given up."""
    emission, params, _ = CONTINUOUS["gamma"]
    smooth = cdf_tables._at
    monkeypatch.setattr(cdf_tables, "_at", lambda *given: [np.floor(2000 * each) / 2000 for each in smooth(*given)])
    assert made(emission, params, monkeypatch)[0] is None
