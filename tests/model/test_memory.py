"""States that remember those before them: which there are, how they move, and what is forgotten."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.model.memory import PIECE, Memory, pruned, times_matrix


def test_memory_of_the_latest_change_keeps_the_chain() -> None:
    moves = np.array([[0.9, 0.06, 0.04], [0.1, 0.85, 0.05], [0.02, 0.08, 0.9]])
    for latest, size in ((True, 3 + 3 * 2 * 4), (False, 3**5)):
        memory = Memory(3, 4, latest=latest)
        assert memory.past.shape == (size, 5) and len(np.unique(memory.past, axis=0)) == size
        wide = memory.expand({"transition": moves, "initial": np.array([0.2, 0.3, 0.5])})
        np.testing.assert_allclose(wide["transition"].sum(axis=1), 1.0)
        np.testing.assert_allclose(memory.fold(wide["initial"]), [0.2, 0.3, 0.5])
        first, third = np.array([0.2, 0.3, 0.5]), np.linalg.matrix_power(moves, 3)
        ahead = wide["initial"] @ np.linalg.matrix_power(wide["transition"], 3)
        np.testing.assert_allclose(memory.fold(ahead), first @ third)
        # What is remembered: the present, and the states before it since and just before the latest change.
        path, state = [2, 2, 0, 1, 1], int(np.flatnonzero((memory.past == 2).all(axis=1))[0])
        for onward in path[1:]:
            state = int(memory.following[state, onward])
        assert memory.past[state].tolist() == ([1, 1, 0, 0, 0] if latest else [1, 1, 0, 2, 2])
    # The share of rows with two changes in four steps, by simulation.
    states = lh.simulate(lh.HMM(3, lh.Poisson()), {"transition": moves, "rate": [1.0, 2.0, 3.0]}, 200_000, seed=3)[0]
    changed = (np.diff(states) != 0).astype(int)
    often = np.mean(np.convolve(changed, np.ones(4), "valid") >= 2)
    assert Memory(3, 4, latest=True).forgotten(moves) == pytest.approx(often, rel=0.03)
    assert Memory(3, 4, latest=False).forgotten(moves) == 0.0
    told = pruned(lh.HMM(3, lh.Gaussian(noise=lh.ARNoise(4))), {"transition": moves})
    assert told == {"forgotten": pytest.approx(often, rel=0.03)} and pruned(lh.HMM(3, lh.Gaussian()), {}) == {}


@pytest.mark.parametrize("rows", [0, 3, PIECE, 3 * PIECE + 5])
@pytest.mark.parametrize("shape", [(2, 2), (5, 3)])
def test_a_product_in_pieces_is_the_product(rows, shape):
    rng = np.random.default_rng(rows)
    left, matrix = rng.normal(size=(rows, shape[0])), rng.normal(size=shape)
    np.testing.assert_allclose(times_matrix(left, matrix), np.einsum("nk,kj->nj", left, matrix), rtol=1e-13, atol=1e-13)


def test_probabilities_are_summed_over_what_is_remembered():
    memory = Memory(2, 3, latest=False)
    values = np.random.default_rng(0).random((2 * PIECE + 9, len(memory.past)))
    expected = [values[:, memory.past[:, 0] == state].sum(axis=1) for state in range(2)]
    np.testing.assert_allclose(memory.fold(values), np.stack(expected, axis=1), rtol=1e-13)
