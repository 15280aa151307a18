"""What became of a case: it worked, it ended in one sentence, or it is lost (anything else)."""

from __future__ import annotations

import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from longhmm.errors import LongHMMError

SECONDS = 60  # a case that takes longer hangs
LONGEST = 2000  # characters of a sentence; file names are in it
MOST_WARNINGS = 3
MOST_MEMORY = 1 << 30  # bytes by which one case may raise the peak of the process


class Case(NamedTuple):
    """One hostile or odd input: `run` gets an empty folder, and returns or raises."""

    name: str
    run: Callable[[Path], None]


class Lost(Exception):
    """A case that neither worked nor ended in one sentence; raised by cases that look for themselves."""


class TooLong(BaseException):
    """Not an Exception, so that nothing on the way takes it for an ordinary failure."""


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Raise `TooLong` in this thread after some seconds."""

    def ring(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judge(case: Case, folder: Path, seconds: int = SECONDS) -> tuple[str, str]:
    """("worked" | "sentence" | "lost", what was said)."""
    peak = _peak()
    began = time.monotonic()
    said, kind = "", "worked"
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            with alarm(seconds):
                case.run(folder)
        except LongHMMError as error:
            kind, said = "sentence", str(error)
        except TooLong:
            return "lost", f"took more than {seconds} seconds"
        except Lost as error:
            return "lost", str(error)
        except BaseException as error:
            return "lost", f"{type(error).__name__}: {error}"[:500]
    if kind == "sentence" and ("\n" in said.strip() or not 10 < len(said) < LONGEST):
        return "lost", f"not one sentence: {said[:500]!r}"
    told = [each for each in heard if not issubclass(each.category, DeprecationWarning | ResourceWarning)]
    if len(told) > MOST_WARNINGS:
        return "lost", f"{len(told)} warnings, such as: {told[0].message}"
    if _peak() - peak > MOST_MEMORY:
        return "lost", f"needed {(_peak() - peak) / 1e9:.1f} GB more ({time.monotonic() - began:.1f} s)"
    return kind, said


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
