"""The fused GPU kernel, run without a GPU: counts of transitions keep what is rare."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from backends.pallas.problems import lowered_problem, quickly, statistics_by, windows
from longhmm import Poisson
from longhmm.backends.pallas import windows as pallas
from longhmm.backends.protocol import Wanted

PER_CHUNK = Wanted(per_chunk=True)


def test_common_transitions_leave_no_rounding_for_those_that_are_never_seen() -> None:
    """Counts of a hundred thousand cancel in the excess of a transition that is expected a tenth of a time."""
    rate, weight = np.array([2.0, 30.0, 200.0, 900.0]), 1e4
    y = np.random.default_rng(1).poisson(rate[np.repeat([0, 1, 0], [14, 15, 11])])[:, None]
    rows = np.array([[0.99 - 6e-7, 0.01, 3e-7, 3e-7], [0.01, 0.99 - 6e-7, 3e-7, 3e-7], [0.25] * 4, [0.25] * 4])
    problem = lowered_problem(Poisson(), {"rate": rate}, y, missing=False)
    # Numbers that both precisions hold alike.
    potentials = replace(problem.potentials, transition=rows)
    problem = problem._replace(potentials=potentials, start=np.array([0.5, 0.5, 0.0, 0.0]))
    problem = jax.tree.map(lambda each: np.float32(each).astype(np.float64), problem)
    layout = windows()
    exact = weight * problem.expected(layout, PER_CHUNK).transitions.sum(0)
    wide = problem.potentials.transition / problem.potentials.transition.sum(1, keepdims=True)
    expected = exact - wide * exact.sum(1, keepdims=True)
    weights = jnp.full(layout.size, weight, jnp.float32)
    found = quickly(lambda narrow: statistics_by(pallas, narrow, layout, Wanted(), weights))(problem.narrow()).centred
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found[:2, 2:], expected[:2, 2:], rtol=1e-4)
    np.testing.assert_allclose(found.sum(1), 0.0, atol=1e-3)
    assert np.abs(expected[:2, 2:]).max() < 0.1 and exact.max() > 1e5
