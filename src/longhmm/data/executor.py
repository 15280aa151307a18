"""Who works through the data: this process, or others. What a task gives depends on work, model, data and argument."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences

Thing = TypeVar("Thing")
DEPTH = 2  # how many things are held ready: one to cover reading, one to cover a slow read now and then

# Gets ready once for many tasks. As it may be sent elsewhere, it is a function of a module, or a `partial` of one.
Work = Callable[[Any, "Sequences"], Callable[[Any], Any]]


class Task(NamedTuple):
    """A part of a pass: its argument, the rows it reads, and whether what it gives is as long, not a few sums."""

    argument: Any
    start: int
    stop: int
    gives_rows: bool = True


class Executor:
    """Runs the tasks of a pass: in this process, each when it is asked for, unless a subclass says otherwise."""

    here = True  # whether tasks run in this process

    def run(self, work: Work, model: Any, sequences: "Sequences", tasks: Iterable[Task]) -> Iterator[Any]:
        """What the tasks give, in their order; some behind the one last asked for may have been run already."""
        one = work(model, sequences)
        for task in tasks:
            yield one(task.argument)


class Watched(Executor):
    """Another executor, after each of whose tasks `check` is called; what it raises ends the pass."""

    def __init__(self, executor: Executor, check: Callable[[], None]) -> None:
        self.executor, self.check, self.here = executor, check, executor.here

    def run(self, work: Work, model: Any, sequences: "Sequences", tasks: Iterable[Task]) -> Iterator[Any]:
        for each in self.executor.run(work, model, sequences, tasks):
            self.check()
            yield each


HERE = Executor()


def nearby(executor: Executor) -> Executor:
    """Who works through a small part of some data: this process, watched as the whole is."""
    return Watched(HERE, executor.check) if isinstance(executor, Watched) else HERE


def ahead(make: Callable[[int], Thing], count: int, depth: int = DEPTH) -> Iterator[Thing]:
    """`make(0)` to `make(count - 1)` in order, each made in another thread while the `depth` before it are in use."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="longhmm-prefetch")
    waiting: deque[Future[Thing]] = deque()
    try:
        for number in range(count):
            waiting.append(pool.submit(make, number))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # left early: nothing more is begun
        pool.shutdown(cancel_futures=True)
