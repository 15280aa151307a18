"""Results of the code as it was when they were stored: nothing that moves may change them (see `make.py`)."""

import numpy as np
import pytest

import longhmm as lh
from golden.cases import CASES
from golden.fits import RUNS
from golden.make import load, of
from golden.results import exact, opened, probabilities, sampled_paths

EXACT = 1e-11  # in float64, relative to the largest entry of an array
SINGLE = 2e-7  # state probabilities are float32, which has no more digits
FEW_STEPS = 1e-5  # draws: chains on windows run in float32, and a few steps do not spread its last digits further

ON_DISK = [name for name, maker in CASES.items() if maker().on_disk]


@pytest.fixture(scope="module")
def stored():
    return load()


def assert_same(found, stored, tolerance):
    assert set(found) == set(stored)
    for name, expected in stored.items():
        assert found[name].shape == expected.shape, name
        if expected.dtype.kind in "iu":
            np.testing.assert_array_equal(found[name], expected, err_msg=name)
        else:
            scale = np.abs(expected).max(initial=0.0)
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=tolerance * scale, err_msg=name)


def assert_case(name, case, data, stored):
    assert_same(exact(case, data), of(stored, "exact", name), EXACT)
    assert_same(probabilities(case, data), of(stored, "probabilities", name), SINGLE)


@pytest.mark.parametrize("name", CASES)
def test_exact_results(name, stored):
    case = CASES[name]()
    assert_case(name, case, opened(case), stored)


@pytest.mark.parametrize("name", ON_DISK)
def test_exact_results_from_files(name, stored, tmp_path):
    case = CASES[name]()
    data = opened(case, tmp_path)
    assert not data.in_memory
    assert_case(name, case, data, stored)


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name):
    case = CASES[name]()
    model = case.model.resolve(opened(case))
    back = lh.constrain(model, lh.unconstrain(model, case.params))
    for each, value in case.params.items():
        np.testing.assert_allclose(back[each], value, rtol=1e-13, atol=1e-15, err_msg=each)


# Draws: stored apart, since random numbers may be spent in another order on purpose (`make.py --draws`).


@pytest.mark.parametrize("name", CASES)
def test_sampled_paths(name, stored):
    case = CASES[name]()
    assert_same({"sampled": sampled_paths(case, opened(case))}, of(stored, "paths", name), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_draws(name, stored):
    assert_same(RUNS[name](), of(stored, "run", name), FEW_STEPS)
