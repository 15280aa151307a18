"""Workers of a cluster killed (SIGKILL) at random moments of a pass or of a run: the answers stay the same."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import longhmm as lh
from longhmm.data import sequences
from longhmm.data.sequences import open_data
from longhmm.run import cluster
from soak.kills import ENVIRONMENT, Outcome

MODEL = lh.HMM(2, lh.Poisson())
PARAMS = {"transition": [[0.95, 0.05], [0.1, 0.9]], "rate": [2.0, 12.0]}
CHUNK = 1 << 16
PATIENCE = 300  # seconds within which a killed worker must have been replaced


@contextmanager
def local_cluster(folder: Path) -> Iterator[Any]:
    """A client of a cluster of two processes on this machine, which import longhmm from where this process does."""
    import dask
    import distributed

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = ENVIRONMENT["PYTHONPATH"]
    try:
        with (
            # A worker that takes long to come back on a busy machine would be given up for good.
            dask.config.set({"distributed.deploy.lost-worker-timeout": f"{PATIENCE}s"}),
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                local_directory=str(folder),
                silence_logs=50,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def kill_workers(place: Path, kills: int, seed: int = 0, length: int = 1_000_000) -> Outcome:
    """Kill a worker in every case, wherever it is: in passes over a file, over a Dask array, and in a run of chains."""
    import dask.array

    place.mkdir(parents=True, exist_ok=True)
    _, values = lh.simulate(MODEL, PARAMS, length, seed=1)
    np.save(place / "y.npy", values[:, 0])
    rng, lost = np.random.default_rng(seed), []
    sequences.IN_MEMORY = 0  # as if the file were long
    cluster.PARCEL_ROWS = cluster.SUM_ROWS = CHUNK  # many parcels, so that a kill always finds some under way
    with local_cluster(place / "workers") as client:
        held = client.persist(dask.array.from_array(values[:, 0], chunks=CHUNK))
        data = {"a file": open_data(place / "y.npy"), "a Dask array": open_data(held)}
        asked = _questions(place / "y.npy")
        expected = {question: ask(data["a file"], None) for question, ask in asked.items()}
        for case in range(kills):
            question, where = list(asked)[case % len(asked)], list(data)[case // len(asked) % len(data)]
            client.wait_for_workers(2, timeout=PATIENCE)
            began = time.monotonic()
            asked[question](data[where], client)
            found = _asked_under_fire(client, rng.uniform(0, time.monotonic() - began), asked[question], data[where])
            if not np.array_equal(found, expected[question]):
                lost.append(f"worker {case}: another answer to {question} of {where}")
    return Outcome(kills, lost)


def _questions(path: Path) -> dict[str, Callable[[Any, Any], Any]]:
    def gradient(data: Any, client: Any) -> Any:
        return np.concatenate(
            [each.ravel() for each in lh.gradient(MODEL, PARAMS, lh.on_cluster(data, client)).values()]
        )

    def probabilities(data: Any, client: Any) -> Any:
        return lh.state_probabilities(MODEL, PARAMS, lh.on_cluster(data, client))

    def path_of(data: Any, client: Any) -> Any:
        return lh.decode(MODEL, PARAMS, lh.on_cluster(data, client))

    def draws(data: Any, client: Any) -> Any:
        how: dict[str, Any] = {"sampler": lh.SGRLD(step_size=1e-3), "windows": lh.Windows(3, 4), "init": PARAMS}
        how |= {"buffer": lh.FixedBuffer(5), "chains": 2, "draws": 300, "warmup": 10, "thin": 2, "progress": False}
        return np.asarray(lh.sample(MODEL, path, client=client, **how).draws["rate"])

    return {"gradient": gradient, "state probabilities": probabilities, "path": path_of, "draws": draws}


def _asked_under_fire(client: Any, moment: float, ask: Callable[[Any, Any], Any], data: Any) -> Any:
    """An answer during which, after `moment` seconds, a worker is killed."""
    victim = next(iter(client.run(os.getpid).values()))
    shot = threading.Timer(moment, lambda: os.kill(victim, signal.SIGKILL))
    shot.start()
    try:
        return ask(data, client)
    finally:
        shot.join()
