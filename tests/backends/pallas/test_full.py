"""Full passes of the GPU kernel, run without a GPU, against streams."""

import re

import numpy as np
import pytest

import longhmm as lh
from longhmm.backends import native
from longhmm.backends.pallas import full, windows
from longhmm.backends.stream import totals
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.target.target import exact


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything believes that there is a GPU; the kernel itself knows better, and is interpreted."""
    monkeypatch.setattr(native, "usable", lambda: False)
    monkeypatch.setattr(windows, "usable", lambda: True)
    # Several blocks, whose boundaries must agree as well.
    monkeypatch.setattr(full, "LEAST_CHUNK", 16)
    monkeypatch.setattr(full, "BLOCK_ENTRIES", 1)


def test_a_full_pass_equals_a_stream(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lh.HMM(2, lh.Gaussian())
    apart = {"mean": np.array([40.0, 42.0]), "sd": np.array([1.0, 1.4])}
    complete = model.validate({**apart, "transition": np.array([[0.8, 0.2], [0.3, 0.7]])})
    rng = np.random.default_rng(5)
    y = complete["mean"][rng.integers(2, size=900)] + rng.normal(size=900)
    y[[3, 500]] = np.nan
    sequences = open_data([y[:640], y[640:641], y[641:]])
    rows: list[int] = []
    model = model.resolve(sequences)
    found = exact(model, complete, sequences, progress=rows.append)[1].totals
    (laid,) = full._laid[sequences].values()
    assert [block.joined.shape for block in laid.blocks] == [(32,), (32,)]
    assert rows == [900]  # one report for all rows: it was the GPU's pass that answered
    monkeypatch.setattr(windows, "usable", lambda: False)
    expected = exact(model, complete, sequences)[1].totals
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-6)
    np.testing.assert_allclose(found.first, expected.first, atol=1e-5)
    np.testing.assert_allclose(found.transitions, expected.transitions, rtol=1e-6, atol=1e-3)
    for name, slope in expected.natural.items():
        np.testing.assert_allclose(found.natural[name], slope, rtol=1e-4, atol=1e-3, err_msg=name)


def test_rounded_parameters_cost_nothing(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away from the mode a mean that is off by one unit of single precision would move the log likelihood by 0.2."""
    model, far = lh.HMM(2, lh.Gaussian()), np.array([1000.3, 1004.0])
    params = {"mean": far, "sd": np.array([1.1, 1.7]), "transition": np.array([[0.83, 0.17], [0.29, 0.71]])}
    rng = np.random.default_rng(8)
    y = (far[0] + 0.7 + 3.0 * rng.integers(2, size=20_000) + rng.normal(size=20_000)).astype(np.float32)
    sequences = open_data(y)
    model, complete = model.resolve(sequences), model.validate(params)
    monkeypatch.setattr(full, "BLOCK_ENTRIES", 1 << 28)
    value, found = exact(model, complete, sequences)
    monkeypatch.setattr(windows, "usable", lambda: False)
    expected_value, expected = exact(model, complete, sequences)
    assert value == pytest.approx(expected_value, abs=2e-3)
    for name, slope in expected.gradient.items():
        np.testing.assert_allclose(found.gradient[name], slope, atol=0.1, err_msg=name)  # their scatter is about 100


def test_parameters_are_checked_while_the_device_works(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = lh.HMM(2, lh.Gaussian()), []
    params = {"mean": np.array([0.0, 4.0]), "sd": np.ones(2), "transition": np.array([[0.8, 0.2], [0.3, 0.7]])}
    sequences = open_data(np.random.default_rng(2).normal(size=300))
    slope = lh.gradient(model, params, sequences)
    slope["mean"] += 1.0  # is the caller's own
    assert not np.array_equal(slope["mean"], lh.gradient(model, params, sequences)["mean"])
    # Nobody may ask for the answer of this one.
    monkeypatch.setattr(full, "_sums", lambda *given: asked.append(given) or (None, None, None))
    for wrong, launched in (({"sd": np.array([1.0, -1.0])}, True), ({"sd": np.ones(3)}, False)):
        asked.clear()
        with pytest.raises(ModelError) as refused:
            lh.gradient(model, {**params, **wrong}, sequences)
        with pytest.raises(ModelError, match=re.escape(str(refused.value))):
            model.resolve(sequences).validate({**params, **wrong})
        assert bool(asked) == launched


def test_where_boundaries_do_not_agree_a_stream_answers(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """States that hardly ever change and hardly differ."""
    monkeypatch.setattr(full, "OVERLAPS", (32,))
    model = lh.HMM(2, lh.Poisson())
    slow = model.validate({"transition": np.array([[0.9999, 1e-4], [1e-4, 0.9999]]), "rate": np.array([4.0, 4.2])})
    y = np.random.default_rng(1).poisson(4.0, size=300)
    sequences = open_data(y)
    assert full.gpu_totals(model, slow, sequences) is None
    found = totals(model, slow, sequences)
    monkeypatch.setattr(windows, "usable", lambda: False)
    assert found.log_likelihood == totals(model, slow, sequences).log_likelihood


def test_data_that_the_kernel_cannot_read_are_left_to_streams(on_a_gpu: None) -> None:
    poisson = lh.HMM(2, lh.Poisson())
    params = poisson.validate({"transition": np.array([[0.8, 0.2], [0.3, 0.7]]), "rate": np.array([2.0, 9.0])})
    assert full.gpu_totals(poisson, params, open_data(np.arange(9), states=np.full(9, -1))) is None
    student = lh.HMM(2, lh.StudentT())
    given = {"df": np.full(2, 4.0), "loc": np.array([0.0, 3.0]), "scale": np.ones(2)}
    params = student.validate({"transition": params["transition"], **given})
    assert full.gpu_totals(student, params, open_data(np.arange(9.0))) is None
