"""Blocks hold every row once, with the right neighbours; passes read little more than the data, in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from longhmm.kernels.blocks import Plan
from scipy import stats

import longhmm
from longhmm import Emission
from longhmm.backends.answers import decode, log_likelihood, state_probabilities
from longhmm.data.sequences import open_data
from longhmm.kernels import blocks, fused_pass, native, rows
from longhmm.model.hmm import HMM

NORMAL = Emission(dist.Normal, loc=dist.Normal(0.0, 3.0), scale=1.0)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    chunk=st.sampled_from([1, 4, 8]),
    lanes=st.sampled_from([1, 2, 8]),
    reach=st.sampled_from([0, 3, 20]),
)
def test_every_row_lies_in_one_chunk_with_its_neighbours(
    lengths: list[int], chunk: int, lanes: int, reach: int
) -> None:
    """Values are their own positions, so that every table can be read off."""
    total = sum(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = open_data(np.arange(total), lengths=lengths, states=np.arange(total))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CHUNK_LENGTHS", (chunk,))
        patch.setattr(blocks, "MESSAGE_ENTRIES", lanes * 3 * chunk)
        plan = Plan(data, n_states=3)
    seen: list[int] = []
    for index in range(plan.n_blocks):
        start, stop = plan.bounds(index)
        block = plan.read(index, reach)
        assert len(block.values) == plan.lanes * plan.chunk_length + 2 * reach
        padded = np.append(block.values[:, 0], -9)
        outside = np.append(~block.observed[:, 0], True)
        assert (np.append(block.states, -9)[~outside] == padded[~outside]).all()
        owned: list[int] = []
        for lane in np.flatnonzero(block.length):
            rows, left, right = (padded[table[:, lane]] for table in (block.rows, block.left, block.right))
            own = rows[: block.length[lane]]
            assert (rows[block.length[lane] :] == -9).all()
            owned += own.tolist()
            sequence = np.searchsorted(offsets, own[0], side="right") - 1
            begin, end = offsets[sequence], offsets[sequence + 1]
            first, last = own[0], own[-1]
            before, after = np.arange(max(begin, first - reach), first), np.arange(last + 1, min(end, last + 1 + reach))
            np.testing.assert_array_equal(left[left >= 0], before)
            np.testing.assert_array_equal(left[: block.left_length[lane]], before)
            np.testing.assert_array_equal(right[right >= 0], after)
            assert block.at_start[lane] == (first == begin) and block.at_end[lane] == (last + 1 == end)
            assert block.left_at_start[lane] == (first - len(before) == begin)
            assert block.right_at_end[lane] == (last + len(after) + 1 == end)
            assert plan.joints(index)[lane] == (first != begin)
            assert plan.position(index, reach, int(block.rows[0, lane])) == first
        assert owned == list(range(start, stop))
        seen += owned
    assert seen == list(range(total))


class Recording:
    """An array that counts the rows that are read from it, and the longest read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.rows = self.longest = 0

    def __getitem__(self, key: Any) -> np.ndarray:
        part = self.values[key]
        self.rows, self.longest = self.rows + len(part), max(self.longest, len(part))
        return part


@pytest.mark.parametrize("fused", [True, False])
def test_a_pass_reads_little_more_than_the_data(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    length, block = 100_000, 16 * 1024
    monkeypatch.setattr(native, "_switched_off", not fused)
    monkeypatch.setattr(rows, "COPIED_ROWS", block)
    monkeypatch.setattr(fused_pass, "COPIED_ROWS", block)
    monkeypatch.setattr(blocks, "MESSAGE_ENTRIES", 2 * block)
    rng = np.random.default_rng(0)
    model = HMM(2, NORMAL)
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "loc": [0.0, 2.0]}
    for ask, passes in ((log_likelihood, 1), (state_probabilities, 1), (decode, 3)):
        source = Recording(rng.normal(size=length).astype(np.float32))
        ask(model, params, open_data(source))
        assert length * passes <= source.rows < 1.05 * length * passes
        assert source.longest <= block + 2 * 512


MEASURE = """
    import sys
    import numpy as np
    import numpyro.distributions as dist
    import longhmm as lh
    from longhmm.data.sequences import open_data
    from longhmm.kernels.full_pass import posterior_pass

    emission = lh.Emission(dist.Normal, loc=dist.Normal(0.0, 3.0), scale=1.0)
    model = lh.HMM(4, emission)
    params = {"transition": 0.6 * np.eye(4) + 0.1, "loc": [0.0, 2.0, 4.0, 6.0]}
    data = open_data(sys.argv[1])
    total = sum(result.log_likelihood for result in posterior_pass(model, params, data))
    again = lh.log_likelihood(model, params, data)
    assert abs(total - again) < 1e-9 * abs(total)
    # Not what getrusage says, which counts the memory of the process that started this one as well.
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmHWM"].split()[0]) / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """Peak memory of a whole process, in MB, over files of one and of six million rows."""
    peaks = []
    for length in (1_000_000, 6_000_000):
        path = tmp_path / f"{length}.npy"
        np.save(path, np.random.default_rng(0).normal(size=length).astype(np.float32))
        command = [sys.executable, "-c", textwrap.dedent(MEASURE), str(path)]
        environment = {**os.environ, "PYTHONPATH": str(Path(longhmm.__file__).parents[1])}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        peaks.append(float(done.stdout))
    assert peaks[1] < 900 and peaks[1] < peaks[0] + 100, peaks


def test_a_million_equal_steps_have_their_closed_form() -> None:
    """One state, and three states that emit alike: the sum of log densities, whatever the transitions."""
    length, value = 1_000_000, 3.7
    y = np.full(length, value)
    expected = length * stats.norm.logpdf(value, 1.5, 1.0)
    one = log_likelihood(HMM(1, NORMAL), {"transition": [[1.0]], "loc": [1.5]}, y)
    np.testing.assert_allclose(one, expected, rtol=1e-12)
    transition = [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25], [0.3, 0.6, 0.1]]
    three = log_likelihood(HMM(3, NORMAL), {"transition": transition, "loc": [1.5] * 3}, y)
    np.testing.assert_allclose(three, expected, rtol=1e-12)


@pytest.mark.slow
def test_twenty_million_equal_steps_have_their_closed_form() -> None:
    length, value = 20_000_000, np.float32(3.7)
    y = np.full(length, value)
    loc = [1.5, 1.5]
    found = log_likelihood(HMM(2, NORMAL), {"transition": [[0.9, 0.1], [0.3, 0.7]], "loc": loc}, y)
    np.testing.assert_allclose(found, length * stats.norm.logpdf(float(value), 1.5, 1.0), rtol=1e-12)
