"""Full passes on a cluster of two processes: what one process finds, also if a worker is killed in the middle."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import longhmm as lh
from longhmm.backends import native, read, stream
from longhmm.data.executor import HERE, Task
from longhmm.data.sequences import open_data
from longhmm.data.source import DaskSource
from longhmm.posterior.posterior import Posterior
from longhmm.run import cluster
from longhmm.run.cluster import Cluster, Sent, packed
from posterior.fakes import chains_of

MODEL = lh.HMM(2, lh.Poisson())
PARAMS = {"transition": [[0.95, 0.05], [0.1, 0.9]], "rate": [1.0, 8.0]}
LENGTHS = [7_001, 1, 8_998]


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return lh.simulate(MODEL, PARAMS, length=sum(LENGTHS), seed=1)[1][:, 0].astype(np.int32)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    folder = str(tmp_path_factory.mktemp("workers"))
    environment = {"PYTHONPATH": str(Path(lh.__file__).parents[1]), "LONGHMM_THREADS": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with (
            dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"}),  # also on a busy machine
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=folder
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ten blocks, in as many parcels, for data as short as these; how they are cut travels with the work."""
    for name in ("COPIED_ROWS", "IN_PLACE_ROWS"):
        monkeypatch.setattr(read, name, 1 << 11)
    for name in ("PARCEL_ROWS", "SUM_ROWS"):
        monkeypatch.setattr(cluster, name, 1 << 11)


def sources(values: np.ndarray, folder: Path) -> dict[str, Any]:
    """The same observations wherever they may lie."""
    import dask.array
    import zarr

    np.save(folder / "y.npy", values)
    zarr.save(str(folder / "y.zarr"), values)
    lazy = dask.array.from_array(values, chunks=3_000)
    found = {"memory": values, "npy": folder / "y.npy", "zarr": folder / "y.zarr", "dask": lazy}
    return {name: open_data(each, lengths=LENGTHS) for name, each in found.items()}


@pytest.mark.parametrize("kind", ["memory", "npy", "zarr", "dask"])
def test_statistics_are_those_of_one_process(kind: str, values: np.ndarray, client: Any, tmp_path: Path) -> None:
    data = sources(values, tmp_path)[kind]
    expected = lh.gradient(MODEL, PARAMS, data)
    found = lh.gradient(MODEL, PARAMS, lh.on_cluster(data, client))
    for name, slope in expected.items():
        np.testing.assert_array_equal(found[name], slope)
    assert lh.log_likelihood(MODEL, PARAMS, lh.on_cluster(data, client)) == lh.log_likelihood(MODEL, PARAMS, data)


def test_a_dask_array_is_never_fetched_by_the_one_who_asks(
    values: np.ndarray, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sources(values, tmp_path)["dask"]
    fetched: list[tuple[int, int]] = []
    read_many = DaskSource.read_many

    def watched(self: DaskSource, spans: Any) -> Any:
        fetched.extend(spans)
        return read_many(self, spans)

    monkeypatch.setattr(DaskSource, "read_many", watched)
    there = lh.on_cluster(data, client)
    found = lh.log_likelihood(MODEL, PARAMS, there), lh.decode(MODEL, PARAMS, there)
    assert fetched == []
    assert found[0] == lh.log_likelihood(MODEL, PARAMS, data)
    assert sum(stop - start for start, stop in fetched) >= sum(LENGTHS)  # as it is without the cluster


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    rng = np.random.default_rng(0)
    draws = {"transition": np.array(PARAMS["transition"]), "rate": np.array(PARAMS["rate"])}
    natural = {name: np.broadcast_to(value, (1, 2, *value.shape)).copy() for name, value in draws.items()}
    natural["rate"] *= rng.uniform(0.9, 1.1, natural["rate"].shape)
    return Posterior.from_chains(MODEL, chains_of(MODEL, natural))


@pytest.mark.parametrize(
    ("kind", "draws", "causal"), [("dask", 1, [False]), pytest.param("npy", 2, [False, True], marks=pytest.mark.slow)]
)
def test_answers_are_those_of_one_process(
    kind: str, draws: int, causal: list[bool], posterior: Posterior, values: np.ndarray, client: Any, tmp_path: Path
) -> None:
    data = sources(values, tmp_path)[kind]
    np.testing.assert_array_equal(posterior.decode(data, client=client), posterior.decode(data))
    asked: dict[str, Any] = {"draws": draws}
    for each in causal:
        expected = posterior.state_probabilities(data, causal=each, **asked)
        found = posterior.state_probabilities(data, causal=each, client=client, **asked)
        np.testing.assert_array_equal(found, expected)
    there, here = posterior.score(data, client=client, **asked), posterior.score(data, **asked)
    np.testing.assert_array_equal(there.blocks, here.blocks)
    assert (there.log_density, there.n_observations) == (here.log_density, sum(LENGTHS))
    # The same without the streamed reference of both.
    whole = [lh.log_likelihood(MODEL, params, data) for params in posterior.iterate(draws)]
    np.testing.assert_allclose(there.by_draw, whole, rtol=1e-12)


@pytest.mark.slow
def test_messages_are_carried_from_worker_to_worker(values: np.ndarray, client: Any, tmp_path: Path) -> None:
    """States that never change: no stretch of rows tells what came before it, and nothing can be guessed."""
    frozen = {**PARAMS, "transition": np.eye(2)}
    data = sources(values, tmp_path)["dask"]
    there = lh.on_cluster(data, client)
    np.testing.assert_array_equal(lh.decode(MODEL, frozen, there), lh.decode(MODEL, frozen, data))
    results = [list(stream.stream(MODEL, MODEL.validate(frozen), each)) for each in (there, data)]
    assert len(results[0]) == len(results[1]) > 5
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)


def test_what_a_worker_refuses_is_said_here(client: Any, tmp_path: Path) -> None:
    model = lh.HMM(2, lh.Categorical(3))
    params = {**PARAMS, "probs": [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]}
    del params["rate"]
    values = np.zeros(9_000, np.int32)
    values[[7_777, 8_888]] = 2
    np.save(tmp_path / "y.npy", values)
    for data in (open_data(tmp_path / "y.npy"), lh.on_cluster(tmp_path / "y.npy", client)):
        with pytest.warns(RuntimeWarning, match=r"row 7777 of .*y\.npy"):
            assert lh.log_likelihood(model, params, data) == -np.inf
    (tmp_path / "y.npy").rename(tmp_path / "z.npy")
    data = lh.on_cluster(tmp_path / "z.npy", client)
    data.source.close()  # type: ignore[attr-defined]
    (tmp_path / "z.npy").unlink()
    with pytest.raises(lh.errors.LongHMMError, match=r"z\.npy is not a readable"):
        lh.log_likelihood(model, params, data)


@pytest.mark.parametrize("kind", [pytest.param("memory", marks=pytest.mark.slow), "dask"])
def test_a_worker_killed_in_the_middle_changes_nothing(
    kind: str, values: np.ndarray, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sources(values, tmp_path)[kind]
    if kind == "dask":
        data = open_data(client.persist(data.source.opened), lengths=LENGTHS)  # type: ignore[attr-defined]
    expected = lh.state_probabilities(MODEL, PARAMS, data), lh.decode(MODEL, PARAMS, data)
    persevere, seen, killed = Sent.persevere, [], []

    def with_a_kill(*given: Any) -> list[Any]:
        seen.append(given)
        if len(seen) == 3:  # others are under way, or done and not yet fetched
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)
        return persevere(*given)

    monkeypatch.setattr(Sent, "persevere", with_a_kill)
    there = lh.on_cluster(data, client)
    np.testing.assert_array_equal(lh.state_probabilities(MODEL, PARAMS, there), expected[0])
    np.testing.assert_array_equal(lh.decode(MODEL, PARAMS, there), expected[1])
    client.wait_for_workers(2, timeout=120)
    assert killed[0] not in client.run(os.getpid).values()


def test_a_worker_that_goes_away_while_data_are_sent_changes_nothing(
    values: np.ndarray, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = lh.log_likelihood(MODEL, PARAMS, values)
    scatter, failures = client.scatter, iter([OSError("lost"), TimeoutError("lost")])

    def stumbling(*given: Any, **options: Any) -> Any:
        assert not options["broadcast"]  # the scheduler may wait for ever if a worker is lost on the way
        for failure in failures:
            raise failure
        return scatter(*given, **options)

    monkeypatch.setattr(client, "scatter", stumbling)
    assert lh.log_likelihood(MODEL, PARAMS, lh.on_cluster(values, client)) == expected
    assert next(failures, None) is None


@pytest.mark.slow
def test_the_default_pipeline_finds_the_same_mode_and_draws(
    values: np.ndarray, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhmm.data.sequences.IN_MEMORY", 0)  # as if the file were long
    data = sources(values, tmp_path)
    how: dict[str, Any] = {
        "sampler": lh.ControlVariateSGLD(),
        "chains": 2,
        "draws": 20,
        "warmup": 20,
        "progress": False,
    }
    expected = lh.sample(MODEL, data["npy"], **how)
    for kind in ("npy", "dask"):  # chains on the workers, and here with windows fetched from the workers
        found = lh.sample(MODEL, data[kind], client=client, **how)
        for name, draws in expected.draws.items():
            np.testing.assert_array_equal(found.draws[name], draws)
        assert found.settings["mode_log_posterior"] == expected.settings["mode_log_posterior"]


class WithoutKernel:
    """Workers on which the C++ kernel was not built."""

    here = False

    def run(self, *asked: Any) -> Iterator[Any]:
        with patch.object(native, "available", lambda: False):
            yield from HERE.run(*asked)


@pytest.mark.skipif(not native.available(), reason="needs the kernel on the side that asks")
def test_workers_without_the_kernel_find_the_same(values: np.ndarray) -> None:
    here = open_data(values, lengths=LENGTHS)
    there = here.run_by(WithoutKernel())
    expected = lh.gradient(MODEL, PARAMS, here)
    for name, slope in lh.gradient(MODEL, PARAMS, there).items():
        np.testing.assert_allclose(slope, expected[name], rtol=1e-9)
    np.testing.assert_array_equal(lh.decode(MODEL, PARAMS, there), lh.decode(MODEL, PARAMS, here))


def test_an_open_file_cannot_be_sent(values: np.ndarray, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")

    class NoWorkers:
        def nthreads(self) -> dict[str, int]:
            return {}

    with h5py.File(tmp_path / "y.h5", "w") as file:
        data = open_data(file.create_dataset("y", data=values)).run_by(Cluster(NoWorkers()))
        with pytest.raises(lh.errors.LongHMMError, match=r"data .* must be fit to be sent .* give the path of a file"):
            lh.log_likelihood(MODEL, PARAMS, data)


def test_parcels_hold_consecutive_tasks_of_one_chunk() -> None:
    import dask.array

    tasks = [Task(n, max(0, 100 * n - 10), min(100 * n + 110, 2_000)) for n in range(20)]
    plain = list(packed(tasks, open_data(np.arange(2_000)), threads=1))
    assert [task for parcel in plain for task in parcel] == tasks
    assert {len(parcel) for parcel in plain} == {4}  # 2,000 rows, four parcels, room for the ends
    assert all(parcel[-1].stop - parcel[0].start <= 500 for parcel in plain)
    chunked = open_data(dask.array.arange(2_000, chunks=250))
    starts = [parcel[0].argument for parcel in packed(tasks, chunked, threads=1)]
    assert starts == [0, 2, 5, 7, 10, 12, 15, 17]


def test_lists_of_dask_arrays_are_many_sequences() -> None:
    import dask.array

    parts = [dask.array.arange(30, chunks=7), dask.array.arange(5, chunks=5)]
    data = open_data(parts)
    assert data.offsets.tolist() == [0, 30, 35]
    assert data.rows(28, 33).values[:, 0].tolist() == [28, 29, 0, 1, 2]
    with pytest.raises(lh.errors.LongHMMError, match="Dask arrays only"):
        open_data([*parts, np.arange(3)])
