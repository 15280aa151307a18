"""The transition matrix: its prior, its zeros and fixed rows, its coordinates and their Jacobian."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from longhmm.errors import ModelError
from longhmm.model.transitions.dirichlet import Sticky, Transitions

pytestmark = pytest.mark.usefixtures("double_precision")


SPARSE = np.array([[2.0, 1.0, 0.0, 3.0], [0.0, 5.0, 0.0, 0.0], [0.5, 0.5, 2.0, 1.5], [1.0, 0.0, 0.0, 4.0]])
CASES = {
    "dense": Transitions(4, 1.5),
    "sticky": Transitions(3, Sticky(stay=20.0, move=0.5)),
    "sparse": Transitions(4, SPARSE),
    "fixed": Transitions(4, SPARSE, {2: [0.0, 0.5, 0.5, 0.0]}),
    "one state": Transitions(1, 1.0),
    "all fixed": Transitions(2, 1.0, {0: [0.5, 0.5], 1: [1.0, 0.0]}),
}
FREE = {"dense": 12, "sticky": 6, "sparse": 2 + 0 + 3 + 1, "fixed": 2 + 0 + 0 + 1, "one state": 0, "all fixed": 0}
EVERY = pytest.mark.parametrize("case", CASES)


def coordinates(transitions: Transitions, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=transitions.n_free)


@EVERY
def test_coordinates_there_and_back(case: str) -> None:
    transitions = CASES[case]
    assert transitions.n_free == FREE[case]
    u = coordinates(transitions)
    matrix = np.asarray(transitions.constrain(jnp.asarray(u)))
    np.testing.assert_allclose(matrix.sum(1), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(matrix > 0, transitions.allowed)
    for row, law in transitions.fixed_rows.items():
        np.testing.assert_array_equal(matrix[row], law)
    np.testing.assert_allclose(transitions.unconstrain(jnp.asarray(matrix)), u, atol=1e-12)
    drawn = transitions.start(np.random.default_rng(3).uniform(0.0, 9.0, transitions.shape))
    back = transitions.constrain(transitions.unconstrain(jnp.asarray(drawn)))
    np.testing.assert_allclose(back, drawn, atol=1e-12)


@EVERY
def test_the_jacobian_is_the_determinant_of_the_free_entries(case: str) -> None:
    """Of all but the last allowed entry of every free row with respect to the coordinates (F17)."""
    transitions = CASES[case]
    u = jnp.asarray(coordinates(transitions, 1))
    kept = [
        (row, column)
        for row in np.flatnonzero(transitions.free_rows)
        for column in np.flatnonzero(transitions.allowed[row])[:-1]
    ]
    rows, columns = (np.array([place[axis] for place in kept], int) for axis in (0, 1))
    derivative = np.asarray(jax.jacobian(lambda at: transitions.constrain(at)[rows, columns])(u))
    expected = np.linalg.slogdet(derivative)[1] if len(kept) else 0.0
    np.testing.assert_allclose(transitions.log_jacobian(transitions.constrain(u)), expected, rtol=1e-11, atol=1e-12)


@EVERY
def test_the_log_prior_is_that_of_dirichlet_rows(case: str) -> None:
    transitions = CASES[case]
    matrix = np.asarray(transitions.constrain(jnp.asarray(coordinates(transitions, 2))))
    expected = 0.0
    for row in range(transitions.n_states):
        entries = transitions.allowed[row]
        if row not in transitions.fixed_rows and entries.sum() > 1:
            law = matrix[row, entries] / matrix[row, entries].sum()
            expected += stats.dirichlet.logpdf(law, transitions.concentration[row, entries])
    np.testing.assert_allclose(transitions.log_prior(jnp.asarray(matrix)), expected, rtol=1e-12, atol=1e-12)


def test_derivatives_of_the_prior_are_finite_next_to_forbidden_entries() -> None:
    transitions = CASES["fixed"]

    def density(u: jax.Array) -> jax.Array:
        matrix = transitions.constrain(u)
        return transitions.log_prior(matrix) + transitions.log_jacobian(matrix)

    u = jnp.asarray(coordinates(transitions, 4))
    gradient = np.asarray(jax.grad(density)(u))
    step = 1e-6
    expected = [
        (density(u + step * unit) - density(u - step * unit)) / (2 * step) for unit in np.eye(transitions.n_free)
    ]
    np.testing.assert_allclose(gradient, np.array(expected), rtol=1e-6, atol=1e-8)


def test_no_entry_is_singled_out() -> None:
    """Isometric: permuting the entries of a row turns its coordinates by a rotation, and leaves lengths alone."""
    transitions = CASES["dense"]
    matrix = np.asarray(transitions.constrain(jnp.asarray(coordinates(transitions, 6))))
    lengths = [
        np.linalg.norm(np.asarray(transitions.unconstrain(jnp.asarray(matrix[:, order]))).reshape(4, 3), axis=1)
        for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 0, 1])
    ]
    np.testing.assert_allclose(lengths[1], lengths[0], rtol=1e-12)
    np.testing.assert_allclose(lengths[2], lengths[0], rtol=1e-12)


def test_sticky_and_exchangeable() -> None:
    np.testing.assert_array_equal(Sticky(5.0, 2.0).matrix(2), [[5.0, 2.0], [2.0, 5.0]])
    assert CASES["dense"].exchangeable and CASES["sticky"].exchangeable and CASES["one state"].exchangeable
    assert not CASES["sparse"].exchangeable and not CASES["all fixed"].exchangeable
    assert not Transitions(2, [[1.0, 2.0], [1.0, 1.0]]).exchangeable


@pytest.mark.parametrize(
    "prior, fixed, sentence",
    [
        ("much", None, "transition_prior must be a number"),
        (np.ones((2, 3)), None, "transition_prior must be a number"),
        (-1.0, None, "at least 0"),
        (np.nan, None, "at least 0"),
        ([[0.0, 0.0], [1.0, 1.0]], None, "at least one transition out of state 0"),
        (1.0, {2: [0.5, 0.5]}, "states from 0 to 1, got 2"),
        (1.0, {0: [0.5, 0.6]}, r"fixed_rows\[0\] must be 2 probabilities"),
        (1.0, {0: [1.5, -0.5]}, r"fixed_rows\[0\] must be 2 probabilities"),
        (1.0, {0: [1.0]}, r"fixed_rows\[0\] must be 2 probabilities"),
    ],
)
def test_what_is_refused(prior: Any, fixed: Any, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        Transitions(2, prior, fixed)


def test_a_fixed_row_may_be_forbidden_by_the_prior() -> None:
    transitions = Transitions(2, [[0.0, 0.0], [1.0, 1.0]], {0: [1.0, 0.0]})
    np.testing.assert_array_equal(transitions.allowed, [[True, False], [True, True]])
