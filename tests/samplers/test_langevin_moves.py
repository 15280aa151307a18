"""Steps of the rows of a transition matrix, on Dirichlet targets with exact counts: no minibatch, no windows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from longhmm.model.transitions.dirichlet import Transitions
from longhmm.run.generator import generator_key
from longhmm.samplers.langevin_moves import MANY, CoxIngersollRoss, Mirror, Rows, normalised, poisson, slope
from samplers.targets import dirichlet_moments

COUNTS = np.array([[400.0, 30.0, 0.0], [5.0, 60.0, 20.0], [0.0, 0.0, 0.0]])
PRIOR = np.array([[1.0, 1.0, 0.5], [2.0, 1.0, 0.5], [1.0, 0.0, 2.0]])
TRANSITIONS = Transitions(3, PRIOR)


def draws(policy, size, steps, chains):
    """`(step, chain, K, K)` draws of A with the exact counts, burn-in discarded."""
    rows = Rows.of(TRANSITIONS)
    counts = jnp.asarray(COUNTS, jnp.float32)
    start = rows.expand(jnp.asarray(dirichlet_moments(PRIOR + COUNTS)[0], jnp.float32))
    pace = size / (1.0 + counts.sum(1) / start.sum(1))

    def one(expanded, key):
        if isinstance(policy, Mirror):
            drift = counts - normalised(expanded) * counts.sum(1, keepdims=True)
            expanded, _ = policy.move(key, rows, expanded, drift, pace, None)
        else:
            expanded, _ = policy.move(key, rows, expanded, counts, pace)
        return expanded, normalised(expanded)

    def chain(key):
        return jax.lax.scan(one, start, jax.random.split(key, steps))[1]

    found = jax.jit(jax.vmap(chain, out_axes=1))(jax.random.split(jax.random.key(1), chains))
    return np.asarray(found, np.float64)[steps // 5 :]


@pytest.mark.slow
def test_cox_ingersoll_ross_has_the_dirichlet_moments_near_empty_cells_too():
    mean, sd = dirichlet_moments(PRIOR + COUNTS)
    found = draws(CoxIngersollRoss(), 0.2, 1000, 60)
    allowed = PRIOR > 0
    np.testing.assert_allclose(found.mean((0, 1))[allowed], mean[allowed], rtol=0.04)
    np.testing.assert_allclose(found.std((0, 1))[allowed], sd[allowed], rtol=0.06)
    assert np.all(found[..., ~allowed] == 0)


def test_mirror_has_the_dirichlet_moments_but_for_near_empty_cells():
    mean, sd = dirichlet_moments(PRIOR + COUNTS)
    found = draws(Mirror(), 0.02, 2500, 400)
    full = COUNTS >= 5
    np.testing.assert_allclose(found.mean((0, 1))[full], mean[full], rtol=0.02)
    np.testing.assert_allclose(found.std((0, 1))[full], sd[full], rtol=0.03)
    # The known bias of the reflection: an empty cell with a = 1/2 comes out about 12 % high.
    assert 0.07 < found.mean((0, 1))[0, 2] / mean[0, 2] - 1 < 0.15


def test_slope_is_counts_less_their_share_of_the_row():
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.ones(3), 3)
    law[2] = [0.3, 0.0, 0.7]
    counts = rng.uniform(0, 50, (3, 3)) * (PRIOR > 0)

    def log_likelihood(coordinates):
        transition = TRANSITIONS.constrain(coordinates)
        return jnp.sum(jnp.where(PRIOR > 0, counts * jnp.log(jnp.where(PRIOR > 0, transition, 1.0)), 0.0))

    with jax.enable_x64(True):
        gradient = jax.grad(log_likelihood)(TRANSITIONS.unconstrain(jnp.asarray(law)))
        found = slope(TRANSITIONS, gradient)
    np.testing.assert_allclose(found, counts - law * counts.sum(1, keepdims=True), atol=1e-9)


@pytest.mark.parametrize("policy", [Mirror(), CoxIngersollRoss()])
def test_forbidden_and_fixed_entries_stay(policy):
    transitions = Transitions(3, PRIOR, {1: [0.2, 0.3, 0.5]})
    rows = Rows.of(transitions)
    law = jnp.asarray([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5], [0.4, 0.0, 0.6]])
    expanded = rows.expand(law)
    extra = (None,) if isinstance(policy, Mirror) else ()
    for seed in range(5):
        counts = jnp.asarray(COUNTS, jnp.float32)
        expanded, _ = policy.move(jax.random.key(seed), rows, expanded, counts, jnp.full(3, 1e-3), *extra)
    np.testing.assert_array_equal(normalised(expanded)[1], law[1])
    assert float(expanded[2, 1]) == 0.0
    assert not np.allclose(normalised(expanded)[0], law[0], atol=1e-4)


def test_many_counts_are_drawn_without_overflow():
    rows = Rows.of(Transitions(2, 1.0))
    counts = jnp.asarray([[2e9, 1e9], [1e3, 2e3]], jnp.float32)
    start = rows.expand(normalised(counts))
    pace = 0.01 / (1.0 + counts.sum(1) / start.sum(1))
    moved, _ = CoxIngersollRoss().move(jax.random.key(0), rows, start, counts, pace)
    np.testing.assert_allclose(moved[0], start[0], rtol=1e-4)


@pytest.mark.parametrize("mean", [1e-7, 0.01, 1.0, 9.5, 10.5, 300.0, MANY / 3, MANY, 1.01 * MANY, 1e6, 1e8])
def test_poisson_draws_from_the_generator_of_compiled_loops(mean):
    """Mean, variance and distribution against SciPy's, with limits that right draws pass once in ten thousand times."""
    size = 200_000
    drawn = jax.jit(poisson)(generator_key(3), jnp.full(size, mean, jnp.float32))
    found = np.asarray(drawn, np.float64)
    exact = stats.poisson(np.float64(np.float32(mean)))
    whole = np.floor(found + 0.5)
    assert abs(whole.mean() - exact.mean()) < 4 * np.sqrt(mean / size) + 1e-9 * mean
    fourth = exact.stats(moments="k") + 2
    assert abs(whole.var() / exact.var() - 1) < 4 * np.sqrt(fourth / size)
    low, high = exact.ppf(1e-6), exact.ppf(1 - 1e-6)
    at = np.unique(np.linspace(low, high, 1000).round())
    below = np.searchsorted(np.sort(whole), at, side="right") / size
    assert np.abs(below - exact.cdf(at)).max() < 2.2 / np.sqrt(size) + 0.07 / np.sqrt(max(mean, MANY))
    assert np.all(whole >= 0)


def test_poisson_draws_are_those_of_jax_where_jax_has_them():
    """The generator of compiled loops is JAX's: the same key, the same counts."""
    means = jnp.asarray([0.3, 4.0, 50.0, 5000.0])
    np.testing.assert_array_equal(poisson(generator_key(5), means), poisson(jax.random.key(5), means))
    np.testing.assert_array_equal(
        poisson(jax.random.key(5), means), jax.random.poisson(jax.random.split(jax.random.key(5))[0], means)
    )
