"""Numbers of dwell times: coordinates, volumes and priors, and starts whose means are those of geometric ones."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from longhmm.model.transitions import hazards
from longhmm.model.transitions.dwell_kinds import KINDS
from model.transitions.dwelling import ENDS, TIMES, of_phases

EACH = pytest.mark.parametrize("kind", KINDS)


@EACH
@pytest.mark.parametrize("phases", [1, 3])
def test_coordinates_and_their_volume(kind, phases):
    own = KINDS[kind]
    u = np.random.default_rng(1).normal(size=(2, len(own.names(phases))))
    with jax.enable_x64(True):
        numbers = jax.jit(own.constrain)(u)
        assert own.right(np.asarray(numbers)) and not own.right(-np.asarray(numbers))
        np.testing.assert_allclose(jax.jit(own.unconstrain)(numbers), u, rtol=1e-9)
        slopes = jax.jit(jax.jacobian(lambda at: own.constrain(at.reshape(u.shape)).ravel()))(u.ravel())
        assert float(own.log_jacobian(numbers)) == pytest.approx(np.linalg.slogdet(slopes)[1], rel=1e-9)


@EACH
def test_starts_have_the_mean_dwell_times_of_a_chain(kind):
    own, leave = KINDS[kind], np.array([0.3, 0.05])
    numbers = own.geometric(leave, 3)
    assert numbers.shape == (2, len(own.names(3))) and own.right(numbers)
    if kind == "phase-type":
        mean = [
            of_phases(*each, 3000) @ np.arange(1, 3001) for each in zip(numbers[:, :3], numbers[:, 3:], strict=True)
        ]
        np.testing.assert_allclose(mean, 1 / leave, atol=1.0)  # every phase takes a row, at least


def test_the_prior_of_rising_times():
    priors = {"mean": dist.Gamma(2.0, 0.1), "hazard": dist.Beta(2.0, 3.0)}
    with jax.enable_x64(True):
        found = KINDS["phase-type"].log_prior(jnp.asarray(np.concatenate([TIMES, ENDS], axis=1)), priors)
    times = stats.gamma.logpdf(TIMES - 1.0, 2.0, scale=10.0).sum() + 3 * np.log(6.0)  # one order of six
    assert float(found) == pytest.approx(times + stats.beta.logpdf(ENDS, 2.0, 3.0).sum())


def test_phases_may_change_places_with_longer_ones_before_them():
    times, end = np.array([6.0, 2.0]), 0.3
    swapped = end * times[1] / times[0]
    np.testing.assert_allclose(of_phases(times, [end], 50), of_phases(times[::-1], [swapped], 50), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_of_phases(dtype):
    with jax.enable_x64(dtype is np.float64):
        found = jax.jit(hazards.phase_type)(TIMES.astype(dtype), ENDS.astype(dtype))
        whole = np.exp(found.stay) + np.exp(found.leave) + np.append(np.exp(found.onward)[:, :2], np.zeros((3, 1)), 1)
        np.testing.assert_allclose(whole, 1.0, rtol=1e-6)
        np.testing.assert_allclose(np.exp(found.leave)[:, :2], ENDS / TIMES[:, :2], rtol=1e-6)
        slope = jax.grad(lambda at: sum(jnp.sum(jnp.exp(each)) for each in hazards.phase_type(at, ENDS.astype(dtype))))
        assert np.isfinite(
            np.asarray(slope(jnp.ones((3, 3), dtype)))
        ).all()  # where nothing is left beyond the first row
