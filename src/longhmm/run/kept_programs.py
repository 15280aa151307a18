"""Compiled programs on disk, shared by processes any of which may be killed at any time.

JAX writes an entry in place and never replaces it, so that one cut short by a kill would stay for good; and its own
bound on the size needs a lock around two files. Here every process has a directory of its own, in which the shared
entries are linked, and moves what it has added to them at the end: a link or a move is done, or not done at all.
"""

import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST = 1 << 26  # bytes of all programs, of other versions too; the oldest are removed
OWN = "process-"  # what the name of a directory that belongs to one process begins with
LEFT_BEHIND = 86_400.0  # seconds after which such a directory counts as that of a process that was killed


@contextmanager
def linked(root: Path, version: str) -> Iterator[Path]:
    """A directory with the programs of this version; those that are added to it meanwhile are kept for others."""
    shared = root / version
    shared.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(prefix=OWN, dir=root))
    try:
        for file in shared.iterdir():
            with suppress(OSError):  # removed by another process a moment ago
                if file.stat().st_size:  # which a computer that lost its power may have left empty
                    try:
                        os.link(file, own / file.name)
                    except OSError:  # not every file system has links
                        shutil.copy2(file, own / file.name)
        before = set(os.listdir(own))
        try:
            yield own
        finally:
            with suppress(OSError):  # a full disk, say, costs only the next start
                added = [file for file in own.iterdir() if file.name not in before and whole(file.read_bytes())]
                for file in added:
                    os.replace(file, shared / file.name)
                if added:
                    bound(root)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def whole(entry: bytes) -> bool:
    """Whether an entry was written to its end, which is known of zlib's format."""
    if entry[:1] != b"\x78":
        return bool(entry)
    reader = zlib.decompressobj()
    try:
        reader.decompress(entry)
    except zlib.error:
        return False
    return reader.eof


def bound(root: Path) -> None:
    """Remove what killed processes left behind, and the oldest programs beyond the limit."""
    for own in root.glob(f"{OWN}*"):
        with suppress(OSError):
            if own.stat().st_mtime < time.time() - LEFT_BEHIND:
                shutil.rmtree(own, ignore_errors=True)
    known = []
    for file in root.glob("*/*"):
        with suppress(OSError):
            if not file.parent.name.startswith(OWN):
                known.append((file.stat().st_mtime, file.stat().st_size, file))
    size = 0
    for _, own_size, file in sorted(known, reverse=True):
        size += own_size
        if size > MOST:
            file.unlink(missing_ok=True)
