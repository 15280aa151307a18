"""Chains on the workers of a Dask cluster.

A block of steps depends on nothing but the sampler, the model, the data, the state of its chain and the number of its
first step. So a block that is lost with its worker is simply run again elsewhere, and nothing in the result changes.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

from longhmm.errors import LongHMMError
from longhmm.run.driver import DRAWING, GRACE, Driver, RunState
from longhmm.run.generator import key_from
from longhmm.run.limit import Limit
from longhmm.samplers.contract import Sampler
from longhmm.target.target import Target

if TYPE_CHECKING:
    from longhmm.run.request import Request

ATTEMPTS = 6  # how often something is begun before the cluster is given up
PAUSE = 0.2  # seconds before the second time, then twice as many, and so on
Result = TypeVar("Result")
KEPT = 4  # drivers that a worker keeps ready


def driver_for(request: Request, sampler: Sampler, target: Target, limit: Limit) -> Driver:
    """The driver of a request: on the cluster if it names one, else in this process."""
    # Windows of a Dask array are fetched from here: a worker that asked others for rows could wait for itself.
    if request.client is None or not request.sequences.portable:
        return Driver(sampler, target, request.seed, limit)
    return ClusterDriver(request.client, sampler, target, request.seed, limit)


def check_client(client: Any) -> None:
    """Refuse what is not a client of Dask."""
    if client is not None and not all(callable(getattr(client, name, None)) for name in ("submit", "gather")):
        raise LongHMMError(
            f"client must be a dask.distributed.Client, got {type(client).__name__}: pip install 'longhmm[cluster]'."
        )


def losses() -> tuple[type[BaseException], ...]:
    """What is raised where workers were lost, rather than where something is wrong with the work."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    return KilledWorker, CancelledError, CommClosedError, TimeoutError, OSError


def to_workers(client: Any, content: bytes) -> Any:
    """Something on one worker, from which the others fetch it.

    Not sent to all of them at once: Dask's scheduler fails, or waits for ever, if one of them is lost on the way.
    """
    return client.scatter(content, broadcast=False, hash=False)


def persevere(work: Callable[[], Result]) -> Result:
    """Do something again, up to some times, while workers are lost on the way."""
    for attempt in range(ATTEMPTS):
        try:
            return work()
        except losses() as error:
            lost = error
            time.sleep(PAUSE * 2**attempt)  # until the scheduler knows, or another worker has come
    raise LongHMMError(
        f"The workers of the cluster were lost {ATTEMPTS} times in a row ({type(lost).__name__}): look at their logs; "
        "a run with a checkpoint goes on when it is started again."
    )


class ClusterDriver(Driver):
    """A driver whose blocks run on workers, one task for each chain."""

    def __init__(self, client: Any, sampler: Sampler, target: Target, seed: int, limit: Limit) -> None:
        super().__init__(sampler, target, seed, limit)
        self.client = client
        self._together = False  # chains are apart from one another here
        self._given: Any = None  # the recipe on the workers; kept, since Dask drops what no one holds

    @functools.cached_property
    def _recipe(self) -> bytes:
        """All that a worker needs, once; data in files travel as their place, data in memory as they are."""
        import cloudpickle

        seed = jax.random.key_data(self.key)
        return cloudpickle.dumps((*jax.tree.map(np.asarray, (self.sampler, self.target)), np.asarray(seed)))

    def _blocks(self, run: RunState, count: int, thin: int) -> list[Any]:
        name = hashlib.sha256(self._recipe).hexdigest()
        states = [jax.tree.map(np.asarray, state) for state in run.states]

        def once() -> list[Any]:
            tasks: list[Any] = []
            try:
                if self._given is None:
                    self._given = to_workers(self.client, self._recipe)
                for chain, state in enumerate(states):
                    block = (name, state, chain, run.steps, count, thin)
                    tasks.append(self.client.submit(run_block, self._given, *block, pure=False, retries=ATTEMPTS))
                return list(self.client.gather(tasks))
            except losses():
                self._given = None  # it may have been lost with the workers
                raise
            finally:
                self.client.cancel(tasks)

        return self.limit.run(functools.partial(persevere, once), DRAWING, GRACE)


@functools.lru_cache(maxsize=KEPT)
def _driver(name: str) -> list[Driver]:
    """A place for the driver of a recipe, empty at first: only the short name is remembered, not the recipe."""
    return []


def run_block(
    recipe: bytes, name: str, state: Any, chain: int, steps: int, count: int, thin: int
) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """On a worker: one block of one chain, beginning after `steps` steps."""
    import cloudpickle

    place = _driver(name)
    if not place:
        sampler, target, seed = cloudpickle.loads(recipe)
        driver = Driver(sampler, target, 0)
        driver.key = key_from(seed)
        place.append(driver)
    # The state is put where the driver looks for it; other chains are elsewhere.
    run = RunState([state] * (chain + 1), steps)
    return jax.tree.map(np.asarray, place[0]._block(run, count, thin, chain))
