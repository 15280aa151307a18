"""Checkpoints: the state of a run on disk, written so that being killed at any moment loses nothing already saved.

One file holds everything: arrays in NumPy's own format (never pickled) and a JSON header with a version and a digest.
It is written beside the old one and put in its place in a single rename.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.errors import LongHMMError

VERSION = 1
NAME = "checkpoint.npz"


class CheckpointError(LongHMMError):
    """A checkpoint that cannot be used; the text says what to do."""


def save(directory: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Replace the checkpoint in `directory`, atomically."""
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    body = io.BytesIO()
    contents: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    np.savez(body, **contents)
    content = body.getvalue()
    document = {**header, "version": VERSION, "digest": hashlib.sha256(content).hexdigest()}
    top = json.dumps(document).encode()
    temporary = place / f".{NAME}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(len(top).to_bytes(8, "little"))
            file.write(top)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place / NAME)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(
            f"The checkpoint in {place} could not be written ({error.strerror}): free some space or choose another "
            "directory; what was saved before is untouched."
        ) from None


def load(directory: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """The header and arrays of the checkpoint in `directory`, verified; None if there is none yet."""
    file = Path(directory) / NAME
    if not file.exists():
        return None
    try:
        raw = file.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])
        content = raw[8 + size :]
        intact = hashlib.sha256(content).hexdigest() == header["digest"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        intact, header, content = False, {}, b""
    if not intact:
        raise CheckpointError(f"{file} is damaged: delete it to start this run over.")
    if header["version"] != VERSION:
        raise CheckpointError(
            f"{file} was written by another version of longhmm (format {header['version']}, this is {VERSION}): finish "
            "it with that version, or delete it to start over."
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return header, {name: stored[name] for name in stored.files}
