"""Distribution functions from tables are those of every observation."""

import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.model.memory import unfold
from longhmm.posterior.diagnostics import cdf_tables
from longhmm.posterior.diagnostics.cdf_tables import FAINT, FEWEST, RELATIVE, distribution_functions

TRANSITION = np.array([[0.9, 0.1], [0.2, 0.8]])
LOC, SCALE, RATE = np.array([-1.0, 2.0]), np.array([0.5, 1.5]), np.array([0.8, 9.0])
CONTINUOUS = {
    "gamma": (lh.Gamma(), {"concentration": RATE, "rate": SCALE}, stats.gamma(RATE, scale=1 / SCALE)),
    "student-t": (lh.StudentT(), {"df": RATE, "loc": LOC, "scale": SCALE}, stats.t(RATE, LOC, SCALE)),
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


def found_and_rows(emission, params, monkeypatch, *, length=FEWEST, missing=()):
    """The functions at all rows, the rows, and how many values they were evaluated at."""
    params, model = {"transition": TRANSITION, **params}, lh.HMM(2, emission)
    values = np.asarray(lh.simulate(model, params, length, seed=5)[1], np.float64)
    values[list(missing)] = np.nan
    data = lh.open_data(values)
    model = model.resolve(data)
    _, model, complete = unfold(model, model.validate(params))
    evaluated, exact = [], cdf_tables._exact
    monkeypatch.setattr(cdf_tables, "_exact", lambda *given: evaluated.append(len(given[2].values)) or exact(*given))
    functions = distribution_functions(model, complete, data)
    rows = data.rows(0, length)
    rows = rows._replace(values=np.where(rows.observed, rows.values, rows.values[0]))
    return functions(rows), rows.values[:, 0], sum(evaluated)


@pytest.mark.parametrize("family", CONTINUOUS)
def test_splines_are_as_good_as_the_function(family, monkeypatch):
    emission, params, known = CONTINUOUS[family]
    (found,), values, evaluated = found_and_rows(emission, params, monkeypatch, missing=(3, 4, 100))
    assert evaluated < FEWEST / 4  # a table, then
    below, above = known.cdf(values[:, None]), known.sf(values[:, None])
    # Half way between nodes the error is near its largest; rounding of a probability near 1 is not the table's.
    allowed = 2 * RELATIVE * (np.minimum(below, above) + FAINT) + 1e-15
    assert np.all(np.abs(found[:, :, 0] - below) <= allowed)


@pytest.mark.parametrize("family", DISCRETE)
def test_counts_are_looked_up(family, monkeypatch):
    emission, params, known = DISCRETE[family]
    (lower, upper), values, evaluated = found_and_rows(emission, params, monkeypatch, length=2000, missing=(7,))
    assert evaluated < 2000 / 4
    np.testing.assert_allclose(upper[:, :, 0], known.cdf(values[:, None]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(lower[:, :, 0], known.cdf(values[:, None] - 1), rtol=1e-9, atol=1e-12)


def test_few_rows_are_evaluated_one_by_one(monkeypatch):
    emission, params, known = CONTINUOUS["gamma"]
    (found,), values, evaluated = found_and_rows(emission, params, monkeypatch, length=300)
    assert evaluated == 300
    np.testing.assert_allclose(found[:, :, 0], known.cdf(values[:, None]), rtol=1e-9)


def test_a_function_with_steps_has_no_spline(monkeypatch):
    """Splines that never agree are given up."""
    emission, params, _ = CONTINUOUS["gamma"]
    smooth = cdf_tables._at
    monkeypatch.setattr(cdf_tables, "_at", lambda *given: [np.floor(20 * each) / 20 for each in smooth(*given)])
    _, _, evaluated = found_and_rows(emission, params, monkeypatch)
    assert evaluated >= FEWEST
