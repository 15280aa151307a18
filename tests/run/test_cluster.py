"""Chains on a cluster of two processes: the draws of one process, also if a worker is killed in the middle."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import LongHMMError
from longhmm.run.cluster import ClusterDriver


def sampled(path, **options):
    return lh.sample(
        lh.HMM(2, lh.Poisson()),
        path,
        sampler=lh.SGRLD(step_size=1e-3),
        windows=lh.Windows(3, 4),
        buffer=lh.FixedBuffer(5),
        init={"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]},
        chains=2,
        draws=60,
        warmup=10,
        thin=2,
        progress=False,
        **options,
    )


def test_a_client_must_be_one():
    with pytest.raises(LongHMMError, match=r"client must be a dask\.distributed\.Client, got str"):
        lh.sample(lh.HMM(2, lh.Poisson()), np.arange(30) % 7, client="localhost:8786", progress=False)


@pytest.mark.slow
def test_draws_on_workers_are_those_of_one_process_even_if_a_worker_is_killed(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    values = lh.simulate(lh.HMM(2, lh.Poisson()), params, length=5_000, seed=1)[1].astype(np.int32)
    np.save(tmp_path / "y.npy", values)
    monkeypatch.setattr("longhmm.data.sequences.IN_MEMORY", 0)  # as if the file were long
    here = np.asarray(sampled(tmp_path / "y.npy").draws["rate"])
    monkeypatch.setattr("longhmm.run.driver.BLOCK_STEPS", 20)  # many blocks, so that the kill falls between some
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(os.path.dirname(lh.__file__))]))
    killed = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        blocks = ClusterDriver._blocks

        def with_a_kill(self, run, count, thin):
            if run.draws >= 20 and not killed:
                victim = next(iter(client.run(os.getpid).values()))
                killed.append(victim)
                threading.Thread(target=lambda: (time.sleep(0.05), os.kill(victim, signal.SIGKILL))).start()
            return blocks(self, run, count, thin)

        monkeypatch.setattr(ClusterDriver, "_blocks", with_a_kill)
        there = np.asarray(sampled(tmp_path / "y.npy", client=client).draws["rate"])
    assert killed
    np.testing.assert_array_equal(there, here)
