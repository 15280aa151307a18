"""Sampling from files: windows read ahead give the draws that the same windows give from anywhere else."""

import numpy as np
import pytest
import zarr

import longhmm as lh
from longhmm.run.driver import Driver


@pytest.fixture(scope="module")
def values():
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    return lh.simulate(lh.HMM(2, lh.Poisson()), params, length=5_000, seed=1)[1].astype(np.int32)


def draws_of(data):
    posterior = lh.sample(
        lh.HMM(2, lh.Poisson()),
        data,
        sampler=lh.SGRLD(step_size=1e-3),
        windows=lh.Windows(3, 4),
        buffer=lh.FixedBuffer(5),
        init={"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]},
        chains=2,
        draws=6,
        warmup=4,
        thin=2,
        progress=False,
    )
    return np.asarray(posterior.draws["rate"])


def test_draws_do_not_depend_on_where_the_data_lie(values, tmp_path, monkeypatch):
    np.save(tmp_path / "y.npy", values)
    zarr.create_array(f"memory://{tmp_path.name}/y.zarr", data=values, chunks=(256, 1))
    held, small = draws_of(values), draws_of(tmp_path / "y.npy")
    np.testing.assert_array_equal(small, held)  # a short file is loaded
    monkeypatch.setattr("longhmm.data.sequences.IN_MEMORY", 0)
    calls = []
    read = Driver._by_draws
    monkeypatch.setattr(Driver, "_by_draws", lambda *given: calls.append(given) or read(*given))
    mapped, far = draws_of(tmp_path / "y.npy"), draws_of(f"memory://{tmp_path.name}/y.zarr")
    assert calls
    np.testing.assert_array_equal(mapped, far)
    calls.clear()
    np.testing.assert_array_equal(draws_of(values), held)
    assert not calls
    np.testing.assert_allclose(mapped, held, rtol=2e-4)  # the same windows and noise, summed in another order
    assert np.ptp(mapped) > 1e-3
