"""Rows for a backend: checked as they are read, and made into numbers that fill a program's size."""

import numpy as np
import numpyro.distributions as dist
import pytest

from longhmm import Gamma, LogNormal, Poisson
from longhmm.backends import native, read
from longhmm.backends.answers import decode, log_likelihood, sample_states, state_probabilities
from longhmm.backends.read import Reader, check_all, chunk_length, partly_observed
from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.model.hmm import HMM


def test_data_outside_the_support_are_refused_by_row() -> None:
    model = HMM(2, Poisson(rate=dist.Gamma(1.0, 1.0)))
    params = {"transition": [[0.9, 0.1], [0.1, 0.9]], "rate": [1.0, 5.0]}
    y = np.ones(3000, int)
    y[2900] = -1
    for ask in (log_likelihood, state_probabilities, decode, sample_states):
        with pytest.raises(DataError, match="row 2900 of the array is -1"):
            ask(model, params, y)


def test_numbers_fill_up_the_size_of_a_program() -> None:
    data = open_data(np.array([[2.0], [np.nan], [5.0], [1.0]]))
    reader = Reader(HMM(2, Poisson(rate=dist.Gamma(1.0, 1.0))), data)
    found = reader.read(1, 4, 5, (2, 4), borrow=False, whole=True)
    assert (found.start, found.size, len(found.rows.values), len(found.numbers)) == (1, 5, 5, 5)
    np.testing.assert_array_equal(found.numbers[:3], reader.numbers(1, 4))
    assert np.isnan(found.numbers[3:]).all() and not found.rows.observed[3:].any()
    assert reader.log_base_measure() == pytest.approx(-np.log([2.0, 120.0, 1.0]).sum())


def test_rows_that_are_observed_in_part_are_seen() -> None:
    model = HMM(2, Poisson(2))
    whole, part, gone = (np.ones((4, 2)) for _ in range(3))
    part[2, 1], gone[2] = np.nan, np.nan
    assert [check_all(model, open_data(each)) for each in (whole, part, gone)] == [False, True, False]
    assert [partly_observed(model, open_data(each)) for each in (whole, part, gone)] == [False, True, False]


@pytest.mark.parametrize("emission", [Gamma(), LogNormal()])
def test_files_that_functions_are_taken_of_are_read_in_place(emission, tmp_path) -> None:
    """More rows than are looked at together, one of them missing: the answers of the array, and its refusals."""
    rng, path = np.random.default_rng(0), tmp_path / "rows.npy"
    values = rng.gamma(2.0, 1.0, 3 * read.SHARE + 5) + 1e-3
    values[read.SHARE] = np.nan
    np.save(path, values)
    names = ("concentration", "rate") if isinstance(emission, Gamma) else ("loc", "scale")
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], **{name: [0.7, 1.5] for name in names}}
    model = HMM(2, emission).resolve(open_data(values))
    reader, own = Reader(model, open_data(path)), slice(read.SHARE - 3, 2 * read.SHARE + 9)
    assert reader.in_place == native.usable()
    found = reader.read(7, 3 * read.SHARE, 3 * read.SHARE, (own.start, own.stop), borrow=reader.in_place, whole=False)
    base = reader.lowering.log_base_measure(values[own, None], ~np.isnan(values[own, None]))
    assert found.log_base_measure == pytest.approx(base, rel=1e-12)
    assert log_likelihood(model, params, path) == pytest.approx(log_likelihood(model, params, values), rel=1e-12)
    values[2 * read.SHARE + 1] = -1
    np.save(path, values)
    with pytest.raises(DataError, match=f"row {2 * read.SHARE + 1} of"):
        log_likelihood(model, params, path)


def test_chunks_are_neither_short_nor_long() -> None:
    assert chunk_length(open_data(np.zeros(10))) == read.LEAST_CHUNK
    assert chunk_length(open_data(np.zeros(1 << 20))) == read.CHUNK
