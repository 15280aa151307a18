"""Checkpoints: the state of a run on disk, written so that being killed at any moment loses nothing already saved.
Trees become JSON beside NumPy's arrays under one digest, never pickled; only names on a list are ever called."""

import contextlib
import errno
import hashlib
import importlib
import io
import json
import os
import re
import threading
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from longhmm.errors import LongHMMError, ModelError
from longhmm.samplers import SAMPLERS

VERSION = 2
NAME = "checkpoint.npz"
BEFORE = ".before"  # ending of the checkpoint before the newest
LOCK = ".lock"
MAGIC = b"longhmm\0"
Arrays = dict[str, np.ndarray]
Contents = tuple[dict[str, Any], Arrays]
_held: Counter[Path] = Counter()  # directories that this process has locked, and how often
_guard = threading.Lock()
CLASSES = {
    name: f"longhmm.{module}"
    for module, names in {
        "samplers.control_variate_sgld": "Tuned",
        "samplers.langevin_moves": "CoxIngersollRoss GaussianMetric Mirror Preconditioned",
        "samplers.preconditioning": "Identity InverseInformation",
        "samplers.schedules": "Constant PolynomialDecay",
        "samplers.sgrld": "Alternating Joint",
        "target.buffer_length": "FixedBuffer LyapunovBuffer",
        "target.control_variate": "CountControl",
        "target.systematic": "Importance Windows",
    }.items()
    for name in names.split()
}
FUNCTIONS = {"stationary_start": "longhmm.target.buffered", "uniform_start": "longhmm.target.buffered"}


class CheckpointError(LongHMMError):
    """A checkpoint that cannot be used; the text says what to do."""


def to_plain(
    value: Any, arrays: Arrays | None = None, at: str = "", known: Iterable[type] = (), described: bool = False
) -> Any:
    """A value as JSON values, with its arrays in `arrays` (None refuses them); `known` are classes beside longhmm's
    own. All else is refused, or `described`: in words, equal in every process, from which nothing can be made again."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) and arrays is not None:
        arrays[at] = np.asarray(value)
        return {"array": at}

    def inside(parts: Mapping[Any, Any]) -> dict[Any, Any]:
        where = f"{at}/" if at else ""
        return {name: to_plain(part, arrays, f"{where}{name}", known, described) for name, part in parts.items()}

    kind, name = type(value), getattr(value, "__name__", type(value).__name__)
    if callable(value) and value is _find(FUNCTIONS, name):
        return {"function": name}
    own = kind in known or kind is _find(CLASSES, name)
    if own or (described and is_dataclass(value)):
        parts = inside({each: getattr(value, each) for each in _names(kind)})
        return {"class": name if own else f"{kind.__module__}.{kind.__qualname__}", "with": parts}
    if kind in (list, tuple):
        return list(inside(dict(enumerate(value))).values())
    if isinstance(value, Mapping) and all(isinstance(each, str) for each in value):
        return {"mapping": inside(value)}
    if described and isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return np.asarray(value).tolist()
    if described:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    raise ModelError(f"a stored value must be plain or one of longhmm's own, got {value!r}.")


def from_plain(plain: Any, arrays: Mapping[str, np.ndarray] | None = None, known: Iterable[type] = ()) -> Any:
    """The inverse of `to_plain`; lists come back as tuples."""
    if isinstance(plain, list):
        return tuple(from_plain(each, arrays, known) for each in plain)
    if not isinstance(plain, dict):
        return plain
    if arrays is not None and isinstance(plain.get("array"), str) and plain["array"] in arrays:
        return arrays[plain["array"]]
    if isinstance(plain.get("mapping"), dict):
        return {name: from_plain(value, arrays, known) for name, value in plain["mapping"].items()}
    if "function" in plain and _find(FUNCTIONS, plain["function"]) is not None:
        return _find(FUNCTIONS, plain["function"])
    if isinstance(plain.get("with"), dict):
        named: Any = [each for each in known if each.__name__ == plain.get("class")]
        kind = named[0] if named else _find(CLASSES, plain.get("class"))
        if kind is not None and set(plain["with"]) <= set(_names(kind)):
            return kind(**{name: from_plain(value, arrays, known) for name, value in plain["with"].items()})
    raise ModelError(f"a stored value must have a known name and known arguments, got {plain!r}.")


def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else tuple(kind._fields)


def _find(places: dict[str, str], name: Any) -> Any:
    if not isinstance(name, str):
        return None
    if name in places:
        return getattr(importlib.import_module(places[name]), name)
    return SAMPLERS.find(name) if places is CLASSES else None  # users may have registered their own


def save(directory: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Replace the checkpoint in `directory`; at every moment, either the new one or the one before is there whole."""
    place = Path(directory)
    content = packed(header, arrays)
    temporary = place / f".{NAME}.{os.getpid()}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob(f".{NAME}.*"):  # by a process that was killed while it wrote
            left.unlink(missing_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if (place / NAME).exists():
            os.replace(place / NAME, place / (NAME + BEFORE))
        os.replace(temporary, place / NAME)
        with contextlib.suppress(OSError):  # lasts through a loss of power, where a directory can be synchronised
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        remedy = "free some space or choose another directory; what was saved before is untouched"
        raise CheckpointError(f"The checkpoint in {place} could not be written ({error.strerror}): {remedy}.") from None


def load(directory: str | os.PathLike[str]) -> Contents | None:
    """The header and arrays of the newest whole checkpoint in `directory`, warned of if an older one; or None."""
    newest = Path(directory) / NAME
    found = [file for file in (newest, newest.with_name(NAME + BEFORE)) if file.is_file()]
    for file in found:
        contents = _read(file)
        if contents is not None:
            if file is not found[0]:
                warnings.warn(f"{newest} is damaged; going on from the checkpoint before it.", stacklevel=2)
            return contents
    if found:
        files, damaged = " and ".join(map(str, found)), f"{newest} is damaged, and there is no whole one before it"
        raise CheckpointError(f"{damaged}: delete {files} to start this run over.")
    return None


def packed(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """A checkpoint as bytes: magic, version, length of the header, digest of everything else, header, arrays."""
    body = io.BytesIO()
    np.savez(body, **dict[str, Any](arrays))
    top = json.dumps(header).encode()
    front = MAGIC + VERSION.to_bytes(8, "little") + len(top).to_bytes(8, "little")
    rest = top + body.getvalue()
    return front + hashlib.sha256(front + rest).digest() + rest


def _read(file: Path) -> Contents | None:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{file} could not be read ({error.strerror}): check its permissions.") from None
    front, digest, rest = raw[:24], raw[24:56], raw[56:]
    if not raw.startswith(MAGIC) or hashlib.sha256(front + rest).digest() != digest:
        return None
    version, size = (int.from_bytes(raw[start : start + 8], "little") for start in (8, 16))
    if version != VERSION:
        other = f"another version of longhmm (format {version}, this is {VERSION})"
        raise CheckpointError(f"{file} was written by {other}: finish it with that, or delete it to start over.")
    try:
        header = json.loads(rest[:size])
        with np.load(io.BytesIO(rest[size:]), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (ValueError, OSError, EOFError, RecursionError, zipfile.BadZipFile, zlib.error):
        return None  # not written by `save`, whatever its digest says
    return (header, arrays) if isinstance(header, dict) else None


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
        descriptor = None if _held[place] else _acquire(place)
        _held[place] += 1
    try:
        yield
    finally:
        with _guard:
            _held[place] -= 1
        if descriptor is not None:
            os.close(descriptor)


def _acquire(place: Path) -> int:
    """An open lock file that no other process has locked."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(place / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            _lock(descriptor, place)
            # Another process may have removed the directory, and its lock with it, between the two lines above.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(place / LOCK)):
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
        who = f"another process ({holder})" if holder.isdigit() else "another process"
        raise RunInUseError(f"{place} is in use by {who}: wait until it is done, or choose another place.") from None
