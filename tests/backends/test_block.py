"""What passes make of blocks: every row once, collected and reduced, here or elsewhere, in bounded memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import longhmm as lh
from backends.chains import CHUNK, CYCLE, HARD, MODEL, PER_BLOCK, K, T, cut, rows_of
from backends.references import given_model, given_params, random_chain, reference
from longhmm.backends import read, stream
from longhmm.backends.answers import decode, log_likelihood, state_probabilities
from longhmm.backends.block import Blocks, How
from longhmm.backends.stream import totals
from longhmm.data.executor import Executor, Task
from longhmm.data.sequences import Sequences, open_data


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    chunk=st.sampled_from([1, 4, 8]),
    per_block=st.sampled_from([1, 2, 8]),
)
def test_every_row_lies_in_one_block(lengths: list[int], chunk: int, per_block: int) -> None:
    data = open_data(np.zeros((sum(lengths), K)), lengths=lengths)
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, chunk=chunk, per_block=per_block)
        blocks = Blocks(How(MODEL.validate(given_params(np.full(K, 1 / K), CYCLE))), MODEL, data)
    begins = [start for s, e in pairwise(data.offsets) for start in range(s, e, chunk)]
    bounds = [blocks.bounds(index) for index in range(blocks.n_blocks)]
    assert [start for start, _ in bounds] == begins[::per_block]
    assert [stop for _, stop in bounds] == [*begins[per_block::per_block], data.length]
    joined = np.concatenate([blocks.joined(index) for index in range(blocks.n_blocks)])[: len(begins)]
    np.testing.assert_array_equal(joined, ~np.isin(begins, data.offsets))


def collect_rows(model: Any, params: Any, rows: Any, weights: Any) -> Any:
    return rows.values[:, 0], weights


def collect_sums(model: Any, params: Any, rows: Any, weights: Any) -> Any:
    return jnp.einsum("tk,td->kd", weights, jnp.where(rows.observed, rows.values, 0.0))


def six_states() -> tuple[lh.HMM, dict[str, np.ndarray], np.ndarray]:
    """Five rows and six states, so that nothing can be mistaken for something else of the same length."""
    initial, transition, logs = random_chain(5, 6, 5)
    return given_model(6), given_model(6).validate(given_params(initial, transition)), logs


def test_collectors_give_sums_or_rows(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, params, logs = six_states()
    exact = reference(params["initial"], params["transition"], [logs])
    for rows in (1 << 18, 2):
        monkeypatch.setattr(read, "COPIED_ROWS", rows)
        monkeypatch.setattr(read, "LEAST_CHUNK", 2)
        found = totals(model, params, open_data(logs), collect_sums)
        np.testing.assert_allclose(found.collected, exact.gamma.T @ logs, atol=1e-11)
        owns = list(stream.stream(model, params, open_data(logs), collect_rows))
        np.testing.assert_array_equal(np.concatenate([own.collected[0] for own in owns]), logs[:, 0])
        np.testing.assert_allclose(np.concatenate([own.collected[1] for own in owns]), exact.gamma, atol=1e-11)


def test_a_reducer_is_given_the_rows_of_a_block(tiny_blocks: None, backend: str) -> None:
    initial, transition, logs = random_chain(8, K, T, spread=3.0)
    lengths = [100, 1, 299]
    exact = reference(initial, transition, np.split(logs, np.cumsum(lengths)[:-1]))
    params = MODEL.validate(given_params(initial, transition))
    data = open_data(logs, lengths=lengths)
    found = list(stream.stream(MODEL, params, data, reduce=lambda own: (own.start, own.stop, own.probabilities[:, 0])))
    assert len(found) > 5 and [start for start, _, _ in found[1:]] == [stop for _, stop, _ in found[:-1]]
    np.testing.assert_allclose(np.concatenate([each for _, _, each in found]), exact.gamma[:, 0], atol=1e-11)


class Elsewhere(Executor):
    """As if in another process: work and what it is given are sent, and blocks behind the next one are run ahead."""

    here = False

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def run(self, work: Any, model: Any, sequences: Sequences, tasks: Any) -> Iterator[Any]:
        asked = list(tasks)
        self.tasks += asked
        one = pickle.loads(pickle.dumps(work))(model, sequences)
        return iter([one(pickle.loads(pickle.dumps(task.argument))) for task in asked])


@pytest.mark.parametrize("case", ["identity, late", "slow, halves"])
def test_another_executor_gives_the_same_bits(case: str, tiny_blocks: None, backend: str) -> None:
    transition, logs = HARD[case]
    params = MODEL.validate(given_params(np.full(K, 1 / K), transition))
    here, there = open_data(logs), open_data(logs)
    there.executor = elsewhere = Elsewhere()
    assert totals(MODEL, params, there).log_likelihood == totals(MODEL, params, here).log_likelihood
    assert not any(task.gives_rows for task in elsewhere.tasks)
    elsewhere.tasks.clear()
    found, expected = (rows_of(stream.stream(MODEL, params, data)) for data in (there, here))
    np.testing.assert_array_equal(found, expected)
    assert any(task.gives_rows for task in elsewhere.tasks)
    own = PER_BLOCK * CHUNK
    for task in elsewhere.tasks:
        assert task.start % own in (0, own - 8, own - 40 % own) and task.stop <= T


# How much is read and held ------------------------------------------------------------------------------------------

NORMAL = lh.Emission(dist.Normal, loc=dist.Normal(0.0, 3.0), scale=1.0)


class Recording:
    """An array that counts the rows that are read from it, and the longest read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.rows = self.longest = 0

    def __getitem__(self, key: Any) -> np.ndarray:
        part = self.values[key]
        self.rows, self.longest = self.rows + len(part), max(self.longest, len(part))
        return part


def test_a_pass_reads_little_more_than_the_data(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    length, rows = 100_000, 16 * 1024
    monkeypatch.setattr(read, "COPIED_ROWS", rows)
    model, rng = lh.HMM(2, NORMAL), np.random.default_rng(0)
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "loc": [0.0, 2.0]}
    for ask, passes in ((log_likelihood, 1), (state_probabilities, 1), (decode, 3)):
        source = Recording(rng.normal(size=length).astype(np.float32))
        ask(model, params, open_data(source))
        assert length * passes <= source.rows < 1.05 * length * passes
        assert source.longest <= rows + 2 * 512


MEASURE = """
    import sys
    import numpy as np
    import numpyro.distributions as dist
    import longhmm as lh
    from longhmm.backends.stream import totals
    from longhmm.data.sequences import open_data

    emission = lh.Emission(dist.Normal, loc=dist.Normal(0.0, 3.0), scale=1.0)
    model = lh.HMM(4, emission)
    params = {"transition": 0.6 * np.eye(4) + 0.1, "loc": [0.0, 2.0, 4.0, 6.0]}
    data = open_data(sys.argv[1])
    total = totals(model, model.validate(params), data).log_likelihood
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
        environment = {**os.environ, "PYTHONPATH": str(Path(lh.__file__).parents[1])}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        peaks.append(float(done.stdout))
    assert peaks[1] < 900 and peaks[1] < peaks[0] + 100, peaks


def test_a_million_equal_steps_have_their_closed_form() -> None:
    """One state, and three states that emit alike: the sum of log densities, whatever the transitions."""
    length, value = 1_000_000, 3.7
    y = np.full(length, value)
    expected = length * stats.norm.logpdf(value, 1.5, 1.0)
    one = log_likelihood(lh.HMM(1, NORMAL), {"transition": [[1.0]], "loc": [1.5]}, y)
    np.testing.assert_allclose(one, expected, rtol=1e-12)
    transition = [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25], [0.3, 0.6, 0.1]]
    three = log_likelihood(lh.HMM(3, NORMAL), {"transition": transition, "loc": [1.5] * 3}, y)
    np.testing.assert_allclose(three, expected, rtol=1e-12)


@pytest.mark.slow
def test_twenty_million_equal_steps_have_their_closed_form() -> None:
    length, value = 20_000_000, np.float32(3.7)
    params = {"transition": [[0.9, 0.1], [0.3, 0.7]], "loc": [1.5, 1.5]}
    found = log_likelihood(lh.HMM(2, NORMAL), params, np.full(length, value))
    np.testing.assert_allclose(found, length * stats.norm.logpdf(float(value), 1.5, 1.0), rtol=1e-12)


def test_progress_counts_every_row_once(tiny_blocks: None, backend: str) -> None:
    for case in ("identity, late", "slow, halves"):
        transition, logs = HARD[case]
        rows: list[int] = []
        totals(
            MODEL, MODEL.validate(given_params(np.full(K, 1 / K), transition)), open_data(logs), progress=rows.append
        )
        assert sum(rows) == T and len(rows) > 10
