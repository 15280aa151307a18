"""Step-size schedules: the formulas, and that nonsense is refused."""

import jax
import numpy as np
import pytest

from longhmm.errors import ModelError
from longhmm.samplers.schedules import Constant, PolynomialDecay, as_schedule


def test_bare_number_is_constant():
    assert as_schedule(0.1) == Constant(0.1)
    assert as_schedule(Constant(0.2)).at(10**9) == 0.2


def test_polynomial_decay_follows_its_formula():
    schedule = PolynomialDecay(step=0.3, offset=20.0, power=0.6)
    assert as_schedule(schedule) is schedule
    indices = np.array([0, 1, 20, 1000])
    np.testing.assert_allclose(schedule.at(indices), [0.3 * (1 + i / 20) ** -0.6 for i in indices], rtol=1e-12)
    assert schedule.at(0) == 0.3


def test_index_may_be_traced():
    schedule = PolynomialDecay(step=0.3, offset=20.0, power=0.6)
    np.testing.assert_allclose(jax.jit(schedule.at)(7), schedule.at(7), rtol=1e-6)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf"), True, "fast", None])
def test_sizes_must_be_positive_numbers(wrong):
    with pytest.raises(ModelError, match="step_size must be a finite number above 0"):
        as_schedule(wrong)
    with pytest.raises(ModelError, match="step must be"):
        Constant(wrong)
    with pytest.raises(ModelError, match="power must be"):
        PolynomialDecay(0.1, 10.0, wrong)
