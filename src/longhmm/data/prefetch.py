"""The next things read in the background while the present one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Thing = TypeVar("Thing")
DEPTH = 2  # how many are held ready: one to cover reading, one to cover a slow read now and then


def ahead(make: Callable[[int], Thing], count: int, depth: int = DEPTH) -> Iterator[Thing]:
    """`make(0)` to `make(count - 1)` in order, each made in another thread while those before it are in use.

    What `make` raises is raised here, in its turn. At most `depth + 1` things exist at a time.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="longhmm-prefetch") as pool:
        waiting: deque[Future[Thing]] = deque()
        try:
            for number in range(count):
                waiting.append(pool.submit(make, number))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # left early: nothing more is begun
            for each in waiting:
                each.cancel()
