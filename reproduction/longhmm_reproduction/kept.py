"""Finished parts of an experiment on disk, so that a run of hours that is stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from longhmm_reproduction.document import Document, log, machine, plain


class Kept:
    """Parts by name in a folder; without a folder nothing is kept.

    A part is taken from its file only if it was made with the same settings; one that was made on another machine is
    named as such.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        self.folder, self.settings = folder, plain(settings)

    def part(self, found: Document, label: str, make: Callable[[Document], None]) -> None:
        """Add to a document what `make` fills in, or what an earlier run has kept of it."""
        name, scale, seed = found.name, found.settings["scale"], found.settings["seed"]
        part = Document(name, scale, seed, {})
        file = None if self.folder is None else self.folder / f"{name}-{scale}-{seed}-{label}.json"
        if file is not None and file.is_file() and self._take(part, file):
            found.join(part)
            return
        log(f"{name} {seed}: {label}")
        make(part)
        if file is not None:
            _save(file, {"made_with": self.settings, "made_on": machine(), **part.to_values()})
        found.join(part)

    def _take(self, part: Document, file: Path) -> bool:
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            if values["made_with"] != self.settings:
                return False
            made_on = values["made_on"]
            part.take_values(values)
        except (ValueError, KeyError, TypeError):  # not a file of ours
            return False
        part.taken.append({"part": file.stem, "elsewhere": None if made_on == machine() else made_on})
        return True


def _save(file: Path, values: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps(values), encoding="utf-8")
    os.replace(beside, file)
