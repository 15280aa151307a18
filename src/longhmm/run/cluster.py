"""Chains and full passes on the workers of a Dask cluster. What is lost with a worker is run again elsewhere, to the
same result. Files are opened by the workers, data in memory sent once, rows of Dask arrays go from worker to worker."""

import contextlib
import functools
import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np

from longhmm.data.executor import Executor, Task, Work
from longhmm.data.sequences import Sequences, Stored, open_data
from longhmm.data.source import DaskSource, one_line
from longhmm.errors import LongHMMError
from longhmm.run.driver import DRAWING, GRACE, Driver, Outcome, RunState
from longhmm.run.limit import Limit
from longhmm.samplers.contract import Sampler
from longhmm.target.target import Target

ATTEMPTS = 6  # how often something is begun before the cluster is given up
PAUSE = 0.2  # seconds before the second time, then twice as many, and so on
Result = TypeVar("Result")
PARCEL_ROWS = 1 << 21  # rows of a parcel whose result is as long: what a worker keeps until it is fetched
SUM_ROWS = 1 << 26  # rows of a parcel that comes back as a few sums: a second or two with the fused kernel
PARCELS_EACH = 4  # parcels for every thread of the cluster at least, so that all end at about the same time
AHEAD = 2  # parcels in hand for every thread: one that runs, one that waits
KEPT = 8  # models, data sets and drivers that a worker keeps at hand


def on_cluster(data: Any, client: Any) -> Sequences:
    """Data over which full passes run on the workers of a cluster; for everything that takes data.

    Args:
        data: a path or address that the workers can open, a Dask array, or anything else that `open_data` takes.
        client: a `dask.distributed.Client`; None leaves the passes to this process.

    Example:
        >>> import longhmm as lh
        >>> lh.on_cluster([1.0, 2.0], client=None).length
        2
    """
    if client is not None and not all(callable(getattr(client, name, None)) for name in ("submit", "gather")):
        given = type(client).__name__
        raise LongHMMError(f"client must be a dask.distributed.Client, got {given}: pip install 'longhmm[cluster]'.")
    sequences = open_data(data)
    return sequences if client is None else sequences.run_by(Cluster(client))


class Sent:
    """Something pickled, under its digest, on one worker, from which the others fetch it: sent to all of them at once,
    Dask's scheduler fails, or waits for ever, if one of them is lost on the way."""

    def __init__(self, client: Any, content: bytes) -> None:
        self.client, self.content, self.name = client, content, hashlib.sha256(content).hexdigest()

    @functools.cached_property
    def there(self) -> Any:  # kept, since Dask drops what no one holds
        return self.client.scatter(self.content, broadcast=False, hash=False)

    def persevere(self, work: Callable[[], Result]) -> Result:
        """Do something with it again, up to some times, while workers are lost on the way, and it may be with them."""
        for attempt in range(ATTEMPTS):
            try:
                return work()
            except losses() as error:
                lost = error
                self.__dict__.pop("there", None)
                time.sleep(PAUSE * 2**attempt)  # until the scheduler knows, or another worker has come
        every = f"The workers of the cluster were lost {ATTEMPTS} times in a row ({type(lost).__name__})"
        raise LongHMMError(f"{every}: look at their logs; a run with a checkpoint goes on when it is started again.")


class Cluster(Executor):
    """Runs tasks on one data set on the workers of a client."""

    here = False

    def __init__(self, client: Any) -> None:
        self.client = client
        self._packed: dict[int, tuple[Any, Sent]] = {}  # models and data, each pickled once

    def run(self, work: Work, model: Any, sequences: Sequences, tasks: Iterable[Task]) -> Iterator[Any]:
        """What the tasks give, in their order, with a few parcels in hand beyond the one last asked for."""
        import cloudpickle

        threads = max(1, sum(self.client.nthreads().values()))
        data, kind, function = self._pack(sequences), self._pack(model), cloudpickle.dumps(work)

        def submit(parcel: list[Task]) -> Any:
            start, stop = min(task.start for task in parcel), max(task.stop for task in parcel)
            # Rows of a Dask array are asked for as futures: they go from worker to worker, never here.
            lazy = {} if sequences.portable else sequences.lazy(start, stop)
            rows = {name: self.client.compute(part) for name, part in lazy.items()}
            arguments = [task.argument for task in parcel]
            given = (data.name, data.there, kind.name, kind.content, function, arguments, start, rows)
            return self.client.submit(run_parcel, *given, pure=False)

        def begun(parcel: list[Task]) -> list[Any]:
            with contextlib.suppress(*losses()):
                return [submit(parcel)]
            return []  # it is sent when its result is asked for

        def result(parcel: list[Task], futures: list[Any]) -> list[Any]:
            return list((futures.pop() if futures else submit(parcel)).result())

        waiting: deque[tuple[list[Task], list[Any]]] = deque()
        try:
            for parcel in packed(tasks, sequences, threads):
                waiting.append((parcel, begun(parcel)))
                if len(waiting) >= AHEAD * threads:
                    yield from data.persevere(functools.partial(result, *waiting.popleft()))
            while waiting:
                yield from data.persevere(functools.partial(result, *waiting.popleft()))
        finally:  # left early: what is still in hand is of no use
            self.client.cancel([future for _, futures in waiting for future in futures])

    def _pack(self, thing: Any) -> Sent:
        """A thing pickled; the thing is kept, so that its identity stays its own."""
        import cloudpickle

        if id(thing) not in self._packed:
            try:
                content = cloudpickle.dumps(thing)
            except Exception as error:  # an open file, a lock: libraries differ in what they say
                what, instead = "model", "make its emission of functions and arrays"
                if isinstance(thing, Sequences):
                    what, instead = f"data ({thing.name})", "give the path of a file rather than an open one"
                why = f"must be fit to be sent to the workers, but cannot be ({one_line(error)})"
                raise LongHMMError(f"{what} {why}: {instead}.") from error
            self._packed[id(thing)] = thing, Sent(self.client, content)
        return self._packed[id(thing)][1]


def packed(tasks: Iterable[Task], sequences: Sequences, threads: int) -> Iterator[list[Task]]:
    """Parcels of consecutive tasks: about so many rows, and of a Dask array those that begin in one chunk."""
    share = max(1, sequences.length // (PARCELS_EACH * threads))
    edges = sequences.source.edges if isinstance(sequences.source, DaskSource) else np.zeros(1)
    held: list[Task] = []
    for task in tasks:
        if held:
            rows = max(task.stop, held[-1].stop) - min(task.start, held[0].start)
            # Where most rows of a task are: its ends may lie in neighbouring chunks.
            chunks = np.searchsorted(edges, [(each.start + each.stop) // 2 for each in (held[0], task)], side="right")
            if rows > min(share, PARCEL_ROWS if task.gives_rows else SUM_ROWS) or chunks[0] != chunks[1]:
                yield held
                held = []
        held.append(task)
    if held:
        yield held


_known: OrderedDict[str, Any] = OrderedDict()
_looking = threading.Lock()


def run_parcel(
    name: str, data: bytes, kind: str, model: bytes, work: bytes, arguments: list[Any], start: int, rows: Stored
) -> list[Any]:
    """On a worker: the tasks of one parcel, one after the other."""
    import cloudpickle

    sequences: Sequences = _opened(name, data)
    if rows:
        sequences = sequences.holding(start, rows)
    return list(map(cloudpickle.loads(work)(_opened(kind, model), sequences), arguments))


def _opened(name: str, content: bytes) -> Any:
    """Something unpickled, and the very same object again next time."""
    import cloudpickle

    with _looking:
        if name not in _known:
            _known[name] = cloudpickle.loads(content)
        _known.move_to_end(name)
        while len(_known) > KEPT:
            _known.popitem(last=False)
        return _known[name]


def losses() -> tuple[type[BaseException], ...]:
    """What is raised where workers were lost, rather than where something is wrong with the work."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    return KilledWorker, CancelledError, CommClosedError, TimeoutError, OSError


class ClusterDriver(Driver):
    """A driver whose blocks run on workers, one task for each chain."""

    def __init__(self, client: Any, sampler: Sampler, target: Target, seed: int, limit: Limit) -> None:
        super().__init__(sampler, target, seed, limit)
        self.client = client
        self._together = False  # chains are apart from one another here

    @functools.cached_property
    def _recipe(self) -> Sent:
        """All that a worker needs, once; data in files travel as their place, data in memory as they are."""
        import cloudpickle

        parts = jax.tree.map(np.asarray, (self.sampler, self.target))
        return Sent(self.client, cloudpickle.dumps((*parts, self.words)))

    def _blocks(self, run: RunState, count: int, thin: int) -> list[Any]:
        states = [jax.tree.map(np.asarray, state) for state in run.states]

        def once() -> list[Any]:
            tasks: list[Any] = []
            try:
                for chain, state in enumerate(states):
                    block = (self._recipe.name, self._recipe.there, state, chain, run.steps, count, thin)
                    tasks.append(self.client.submit(run_block, *block, pure=False, retries=ATTEMPTS))
                return list(self.client.gather(tasks))
            finally:
                self.client.cancel(tasks)

        return self.limit.run(functools.partial(self._recipe.persevere, once), DRAWING, GRACE)


def run_block(name: str, recipe: bytes, state: Any, chain: int, steps: int, count: int, thin: int) -> Outcome:
    """On a worker: one block of one chain, beginning after `steps` steps."""
    sampler, target, words = _opened(name, recipe)
    driver = Driver(sampler, target, 0)
    driver.words = words
    # The state is put where the driver looks for it; other chains are elsewhere.
    found: Outcome = jax.tree.map(np.asarray, driver._block(RunState([state] * (chain + 1), steps), count, thin, chain))
    return found
