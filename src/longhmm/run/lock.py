"""One process at a time in a run directory: the system's own lock, which ends with the process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from longhmm.errors import LongHMMError

NAME = ".lock"
_held: dict[Path, int] = {}  # directories that this process has locked, and how often
_guard = threading.Lock()


class RunInUseError(LongHMMError):
    """Another process works in the same run directory."""


@contextlib.contextmanager
def locked(directory: str | os.PathLike[str] | None) -> Iterator[None]:
    """Hold the directory, made if need be, against other processes; None, or one held by this process, is free."""
    if directory is None:
        yield
        return
    place = Path(directory).resolve()
    with _guard:
        if place not in _held:
            descriptor = _acquire(place)
            _held[place] = 0
        else:
            descriptor = None
        _held[place] += 1
    try:
        yield
    finally:
        with _guard:
            _held[place] -= 1
            if not _held[place]:
                del _held[place]
        if descriptor is not None:
            os.close(descriptor)


def _acquire(place: Path) -> int:
    """An open lock file that no other process has locked."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(place / NAME, os.O_RDWR | os.O_CREAT, 0o644)
            _lock(descriptor, place)
            # Another process may have removed the directory, and its lock with it, between the two lines above.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(place / NAME)):
                    break
            os.close(descriptor)
            place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LongHMMError(f"{place} cannot be written ({error.strerror}): choose another directory.") from None
    with contextlib.suppress(OSError):  # the number is for people; a full disk must not stop here
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _lock(descriptor: int, place: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            return  # a file system without locks
        os.close(descriptor)
        raise RunInUseError(
            f"{place} is in use by another process{f' ({holder})' if holder.isdigit() else ''}: wait until it is done, "
            "or choose another directory."
        ) from None
