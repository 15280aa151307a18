"""When a call ends before its work is done, at its time limit or on Ctrl-C: work runs in threads, which end at their
next look (`check`), while the caller waits, as no compilation and no compiled loop can be interrupted from within."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from longhmm.data.executor import Watched
from longhmm.data.sequences import Sequences
from longhmm.errors import LongHMMError

Result = TypeVar("Result")
LOOK = 0.1  # seconds between two looks at the clock


class TimeIsOver(LongHMMError):
    """The time limit ended a piece of work before there was anything to return."""


class Abandoned(BaseException):
    """Raised in the thread of work that nobody waits for any more."""


class Limit:
    """The end of one call, in seconds from now; None for no limit, which leaves Ctrl-C."""

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._end = None if seconds is None else clock() + seconds
        self._abandoned = threading.Event()

    @property
    def left(self) -> float:
        return float("inf") if self._end is None else self._end - self._clock()

    def sooner(self, share: float) -> "Limit":
        """Another limit, which leaves this share of the time that is left now."""
        if self._end is None:
            return self
        sooner = Limit(self.seconds, self._clock)
        sooner._end = self._end - share * max(self.left, 0.0)
        return sooner

    def over(self, what: str) -> TimeIsOver:
        """What to raise where the time is over before there is anything to return."""
        over = f"{self.seconds:g} seconds were over while {what}"
        return TimeIsOver(f"time_limit must leave time for the first draw, but {over}: allow more.")

    def check(self) -> None:
        """To be called by work, often: it ends here if nobody waits for it any more."""
        if self._abandoned.is_set():
            raise Abandoned

    def watch(self, sequences: Sequences) -> Sequences:
        """The same data, whose passes look here after every block."""
        return sequences.run_by(Watched(sequences.executor, self.check))

    def run(self, work: Callable[[], Result], what: str, grace: float = 0.0) -> Result:
        """What a piece of work returns. `TimeIsOver` tells `what` was being done; Ctrl-C is raised as ever."""
        return self.run_all([work], what, grace)[0]

    def run_all(self, works: Sequence[Callable[[], Result]], what: str, grace: float = 0.0) -> list[Result]:
        """What several pieces of work return, in threads; they are waited for `grace` seconds beyond the limit."""
        pool = ThreadPoolExecutor(min(len(works), os.cpu_count() or 1) or 1, thread_name_prefix="longhmm")
        try:
            futures = [pool.submit(work) for work in works]
            while True:
                done, pending = wait(futures, timeout=LOOK, return_when=FIRST_EXCEPTION)
                for each in done:
                    each.result()  # raises what went wrong there
                if not pending:
                    return [each.result() for each in futures]
                if self.left + grace <= 0:
                    raise self.over(what)
        except BaseException:
            self._abandoned.set()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
