"""Student's t in single precision: its slope in the degrees of freedom against double precision; default priors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.model.emissions.student_t import AccurateStudentT, log_normaliser
from model.emissions import checks

DF = np.array([0.3, 1.0, 4.0, 7.99, 8.01, 29.9, 30.1, 138.0, 250.0, 1e4, 1e8])


def test_the_density_is_that_of_scipy():
    y = np.linspace(-40.0, 50.0, 41)
    with jax.enable_x64(True):
        for df in DF:
            found = AccurateStudentT(jnp.asarray(df), 1.0, 2.0).log_prob(jnp.asarray(y))
            np.testing.assert_allclose(found, stats.t.logpdf(y, df, 1.0, 2.0), rtol=1e-11, atol=1e-11)


def mean_slope(df, z):
    """Derivative of the mean log density with respect to log df."""
    return df * jax.grad(lambda df: jnp.mean(AccurateStudentT(df, 0.0, 1.0).log_prob(z)))(df)


@pytest.mark.parametrize("df", [12.0, 50.0, 120.0, 138.0, 150.0, 250.0])
def test_the_slope_in_df_survives_single_precision(df):
    """Half a million observations determine log df to about 0.2, so that an error of 1 in the slope is 0.2 sd of shift.

    With differences of log gamma functions the error at these values reaches 50.
    """
    z = stats.t.rvs(df, size=2000, random_state=0)
    narrow = float(mean_slope(jnp.float32(df), jnp.asarray(z, jnp.float32)))
    with jax.enable_x64(True):
        wide = float(mean_slope(jnp.float64(df), jnp.asarray(z)))
    assert abs(narrow - wide) * 500_000 < 0.5


def test_both_branches_meet_and_have_finite_slopes():
    with jax.enable_x64(True):
        slopes = jax.vmap(jax.grad(log_normaliser))(jnp.asarray(DF))
        exact = 0.5 * (jax.scipy.special.digamma((DF[:8] + 1) / 2) - jax.scipy.special.digamma(DF[:8] / 2) - 1 / DF[:8])
        np.testing.assert_allclose(slopes[:8], exact, rtol=1e-7)
    assert np.isfinite(jax.vmap(jax.grad(log_normaliser))(jnp.asarray(DF, jnp.float32))).all()
    assert lh.StudentT().builder is AccurateStudentT


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(lh.StudentT())
