"""Smooth terms of formulas: what their columns are, the prior of their coefficients, and what they keep."""

import json
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.interpolate import CubicSpline

import longhmm as lh
from longhmm.errors import DataError, ModelError
from longhmm.model.formula import Formula
from longhmm.model.smooth import basis, roughness
from model.smooth_terms import CYCLIC, FRAME, NATURAL

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("cyclic", [False, True])
def test_splines_are_those_of_scipy(cyclic):
    knots = np.arange(9) * 3.0 if cyclic else np.sort(RNG.uniform(0, 24, 8))
    values = RNG.normal(size=8)
    whole = np.append(values, values[0]) if cyclic else values
    expected = CubicSpline(knots, whole, bc_type="periodic" if cyclic else "natural")
    x = np.linspace(knots[0], knots[-1], 200)
    np.testing.assert_allclose(basis(x, knots, cyclic) @ values, expected(x), atol=1e-12)
    pieces = [quad(lambda at: expected(at, 2) ** 2, *ends)[0] for ends in pairwise(knots)]
    assert values @ roughness(knots, cyclic) @ values == pytest.approx(sum(pieces))
    beyond = np.array([knots[0] - 2.0, knots[-1] + 3.0])
    straight = [expected(knots[0]) - 2 * expected(knots[0], 1), expected(knots[-1]) + 3 * expected(knots[-1], 1)]
    around = [expected(knots[-1] - 2.0), expected(knots[0] + 3.0)]
    np.testing.assert_allclose(basis(beyond, knots, cyclic) @ values, around if cyclic else straight)


@pytest.mark.parametrize(("text", "n_rough"), [(CYCLIC, 7), (NATURAL, 4)])
def test_the_sum_of_squared_coefficients_is_the_roughness(text, n_rough):
    learned = Formula(text).learned(FRAME)
    ends = (0.0, 24.0) if text is CYCLIC else (FRAME.temp.min(), FRAME.temp.max())
    grid = np.linspace(*ends, 20_001)
    columns = learned.matrix(pd.DataFrame({"hour": grid, "temp": grid}))
    rough = columns[:, -n_rough:]
    second = np.diff(rough, 2, axis=0) / (grid[1] - grid[0]) ** 2
    np.testing.assert_allclose(second.T @ second * (grid[1] - grid[0]), np.eye(n_rough), atol=0.01)
    if text is CYCLIC:
        np.testing.assert_allclose(columns[0], columns[-1], atol=1e-9)
        np.testing.assert_allclose(np.diff(columns[:2], axis=0), np.diff(columns[-2:], axis=0), rtol=1e-2, atol=1e-5)
    else:
        np.testing.assert_array_equal(columns[:, 0], grid)
    stored = Formula(text, json.loads(json.dumps(learned.state)))
    np.testing.assert_array_equal(stored.matrix(FRAME[3:5] + 1.0), learned.matrix(FRAME[3:5] + 1.0))
    assert np.isnan(learned.matrix(FRAME[:2] * np.nan)).all()


def test_transitions_and_emissions_take_smooth_terms():
    model = lh.HMM(2, lh.Poisson(rate="~ s(hour, bs='cc', k=5, period=24)"), transitions=CYCLIC)
    data = lh.open_data(RNG.poisson(3.0, 500), covariates=FRAME[["hour"]])
    resolved = model.resolve(data)
    assert resolved.n_covariates == 7 + 4 and resolved.emission.parameters(2)["rate_coefficients"].shape == (2, 5)
    beta = np.zeros((2, 2, 8))
    beta[0, 1, 0], beta[1, 0, 0] = -2.0, -1.0
    params = {"coefficients": beta, "rate_coefficients": np.tile([[0.5], [1.5]], (1, 5))}
    gradient = lh.gradient(resolved, params, data)
    assert gradient["rate_coefficients"].shape == (2, 5) and np.isfinite(gradient["transition"]).all()
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        inside = resolved.emission.parameters(2)["rate_coefficients"].prior.linear
        assert inside.groups == ((0, 1, 2, 3),) and np.isfinite(float(resolved.emission.log_prior(arrays)))


@pytest.mark.parametrize("text", ["~ s(temp, k=2)", "~ s(hour, bs='cc')", "~ s(temp, bs='tp')", "~ s(ID, k=8)"])
def test_what_is_no_smooth_term_is_refused(text):
    with pytest.raises(DataError, match="cannot be evaluated"):
        Formula(text).learned(FRAME)
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    with pytest.raises(ModelError, match="slope must have a standard deviation"):
        lh.HMM(2, lh.Poisson(), transitions=lh.Logit(NATURAL, slope=flat)).resolve(
            lh.open_data(np.ones(500), covariates=FRAME)
        )
