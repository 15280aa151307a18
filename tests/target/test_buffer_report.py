"""The buffer report: its numbers against the full gradient, its table and its picture."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import longhmm as lh
from longhmm.data.layout import Partition
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import ModelError
from longhmm.target.buffer_report import Blocks, BufferReport
from longhmm.target.buffered import stationary_start, uniform_start
from target.references import AWAY, OVERLAPPING, flat, overlapping_data

WINDOWS = lh.Windows(half_width=2)
BUFFERS = [0, 1, 4, 12, 64]


@cache
def small() -> Sequences:
    """Ragged and small enough to look at every cell."""
    y = overlapping_data().rows(0, 1500).values.copy()
    y[::50] = np.nan
    return open_data(y, lengths=[1, 799, 3, 697])


@cache
def of_everything() -> BufferReport:
    return lh.buffer_report(
        OVERLAPPING, AWAY, small(), windows=WINDOWS, buffers=BUFFERS, start=uniform_start, blocks=10**6
    )


def test_every_cell_is_used_and_nothing_is_left_to_chance() -> None:
    report = of_everything()
    assert report.blocks_used == report.n_blocks == Partition(small().offsets, 5).n_blocks
    assert [row.buffer for row in report.rows] == BUFFERS
    assert all(row.bias_error == 0.0 for row in report.rows)
    assert [row.cost for row in report.rows] == [1 + 2 * buffer / 5 for buffer in BUFFERS]


def test_bias_is_the_distance_to_the_full_gradient_in_posterior_deviations() -> None:
    cells = Partition(small().offsets, 5)
    complete = OVERLAPPING.validate(AWAY)
    exact = flat(lh.gradient(OVERLAPPING, AWAY, small(), prior=False))
    every = np.arange(cells.n_blocks)
    spread = Blocks(OVERLAPPING, complete, small(), cells, every).scores(64, stationary_start, 133)[0].std(axis=0)
    for row in of_everything().rows[:3]:
        found = Blocks(OVERLAPPING, complete, small(), cells, every).scores(row.buffer, uniform_start, 133)[0]
        apart = (found.sum(axis=0) - exact) / spread
        assert row.bias == pytest.approx(np.abs(apart).max() / np.sqrt(cells.n_blocks), rel=1e-6)
        assert row.mean_error == pytest.approx(np.linalg.norm(apart) / cells.n_blocks, rel=1e-6)
        assert row.noise == pytest.approx((found.var(axis=0) / spread**2).max(), rel=1e-6)


def test_longer_buffers_are_better_until_nothing_is_left() -> None:
    rows = of_everything().rows
    for name in ("bias", "typical_error", "mean_error"):
        values = [getattr(row, name) for row in rows]
        assert values[0] > 30 * values[3], name
        assert values[3] > 1e3 * values[4], name
    assert rows[4].bias < 1e-8
    assert rows[4].noise == pytest.approx(1.0, abs=1e-6)
    assert [row.share for row in rows] == sorted(row.share for row in rows)
    assert rows[4].share == 1.0


def test_a_sample_of_cells_agrees_with_all_of_them_within_its_error() -> None:
    buffers = [0, 1]
    sample = lh.buffer_report(
        OVERLAPPING, AWAY, overlapping_data(), windows=WINDOWS, buffers=buffers, blocks=4000, seed=1
    )
    whole = lh.buffer_report(OVERLAPPING, AWAY, overlapping_data(), windows=WINDOWS, buffers=buffers, blocks=20_000)
    assert sample.blocks_used == 4000
    assert whole.blocks_used == whole.n_blocks == 20_000
    for some, every in zip(sample.rows, whole.rows, strict=True):
        assert some.bias_error > 0
        assert abs(some.bias - every.bias) < 4 * some.bias_error
        assert every.bias > 10 * some.bias_error  # not for want of precision


def test_the_default_lengths_go_past_the_chosen_one() -> None:
    report = lh.buffer_report(OVERLAPPING, AWAY, small(), windows=WINDOWS, rule=lh.LyapunovBuffer(tolerance=0.5))
    lengths = [row.buffer for row in report.rows]
    assert lengths[:5] == [0, 1, 2, 3, 4]
    assert report.chosen.length in lengths
    assert lengths[-1] >= 2 * report.chosen.length


def test_the_table_has_every_column() -> None:
    lines = str(of_everything()).splitlines()
    assert lines[0].split() == ["buffer", "bias/sd", "+-", "noise", "typical", "mean", "share", "cost"]
    assert len(lines) == 1 + len(BUFFERS) + 1
    assert [int(line.split()[0]) for line in lines[1:-1]] == BUFFERS
    assert all(len(line.split()) == 8 for line in lines[1:-1])
    assert f"chosen buffer {of_everything().chosen.length}" in lines[-1]


def test_the_picture_is_written_without_a_display(tmp_path: Path) -> None:
    path = tmp_path / "buffer_report.png"
    assert of_everything().plot(str(path)) is None
    assert path.read_bytes().startswith(b"\x89PNG")
    axes = of_everything().plot().axes[0]
    assert axes.get_yscale() == "log"
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), BUFFERS)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [row.bias for row in of_everything().rows])


def test_the_module_leaves_pyplot_alone() -> None:
    code = "import sys, longhmm.target.buffer_report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": "src"}, check=False).returncode == 0


def test_nonsense_is_refused() -> None:
    with pytest.raises(ModelError, match="buffers"):
        lh.buffer_report(OVERLAPPING, AWAY, small(), buffers=[-1])
    with pytest.raises(ModelError, match="blocks"):
        lh.buffer_report(OVERLAPPING, AWAY, small(), blocks=0)
    with pytest.raises(ModelError, match="2 feature"):
        lh.buffer_report(OVERLAPPING, AWAY, np.zeros((30, 2)))


def test_states_that_remember_begin_where_their_states_do() -> None:
    model = lh.HMM(2, lh.Gaussian(noise=lh.MANoise(1), response=lh.StepResponse([0.4, 1.0])))
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "mean": [0.0, 3.0], "sd": [1.0, 0.7], "theta": [0.4]}
    y = lh.simulate(model, params, 300, seed=1)[1]
    resolved, sequences = model.meet(y)
    scores, entering = Blocks.some(resolved, resolved.validate(params), sequences, 20, 10**6, 0).exact(16)
    slope = flat(lh.gradient(resolved, params, sequences, prior=False))
    np.testing.assert_allclose(scores.sum(axis=0), slope, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(entering[1:].sum(axis=1), 1.0)
    assert not entering[0].any()
