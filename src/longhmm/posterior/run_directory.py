"""The directory of a run of the command line: what was asked for, where the data lie, and what came of it.

    run.json            the request: recordings, preprocessing, model, settings of the sampler
    checkpoint.npz      the tuned sampler and its chains, for going on after a stop; with .before, the one before it
    posterior/          the result, as `Posterior.save` writes it

The request is there before computing begins, so that a run that was killed can be taken up again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError
from longhmm.posterior.posterior import INSIDE_RUN, load
from longhmm.run.checkpoint import locked

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior

REQUEST = "run.json"
FORMAT, VERSION = "longhmm run", 1
NEEDED = ("recordings", "preprocessing", "model", "sample")


class RunDirectory:
    """One run on disk.

    Attributes:
        path: the directory.
        request: what was asked for, plain values: "recordings" (absolute paths), "dataset", "columns", "rate" (samples
            per second of the file, or None), "unit", "preprocessing", "held_out", "model", "sample".
    """

    def __init__(self, path: str | os.PathLike[str], request: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.request = dict(request)

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], request: Mapping[str, Any], *, overwrite: bool = False
    ) -> RunDirectory:
        """Make the directory with its request; it must not hold anything yet, or a run that may be overwritten."""
        place = Path(path)
        if overwrite and (place / REQUEST).is_file():
            cls.open(place)  # nothing but a run is ever removed
            with locked(place):
                shutil.rmtree(place)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise DataError(f"{place} exists already; choose another directory for the run, or remove it first.")
        try:
            place.mkdir(parents=True, exist_ok=True)
            document = {"format": FORMAT, "version": VERSION, **request}
            temporary = place / f".{REQUEST}.new"
            temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
            os.replace(temporary, place / REQUEST)
        except OSError as error:
            raise DataError(f"{place} cannot be written ({error.strerror}); choose another directory.") from None
        return cls(place, document)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """An existing run, its request checked."""
        place = Path(path)
        if not place.exists():
            raise DataError(f"{place} does not exist; give the directory that `longhmm fit --out` made.")
        try:
            request = json.loads((place / REQUEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(f"{place} is not a run of `longhmm fit` (it has no {REQUEST}).") from None
        except (OSError, ValueError, RecursionError):
            raise DataError(f"{place / REQUEST} cannot be read; the run is damaged, restore a copy of it.") from None
        sound = isinstance(request, dict) and request.get("format") == FORMAT and all(key in request for key in NEEDED)
        if not sound or request.get("version") != VERSION:
            raise DataError(f"{place / REQUEST} does not describe a run that this longhmm knows (version {VERSION}).")
        wrong = _wrong_entry(request)
        if wrong is not None:
            raise DataError(
                f"{place / REQUEST} has no sound entry {wrong!r}; the run is damaged, restore a copy of it."
            )
        return cls(place, request)

    @property
    def has_posterior(self) -> bool:
        return (self.path / INSIDE_RUN / "longhmm.json").is_file()

    @property
    def preprocessing(self) -> Preprocessing:
        try:
            return Preprocessing.from_dict(self.request["preprocessing"])
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{self.path / REQUEST} has no sound entry 'preprocessing'; the run is damaged, restore a copy of it."
            ) from None

    @property
    def rate(self) -> float | None:
        """Samples per second of the recording as it lies in its file."""
        return self.request.get("rate")

    @property
    def model_rate(self) -> float | None:
        """Samples per second as the model sees them, after decimation."""
        return None if self.rate is None else self.rate / self.preprocessing.decimate

    @property
    def unit(self) -> str | None:
        return self.request.get("unit")

    def posterior(self) -> Posterior:
        """The result."""
        if not self.has_posterior:
            raise DataError(f"{self.path} has no posterior yet; finish it with `longhmm resume {self.path}`.")
        return load(self.path / INSIDE_RUN)

    def save(self, posterior: Posterior) -> None:
        """Keep the result, in place of an older one."""
        posterior.save(self.path / INSIDE_RUN)

    def recording(self, given: Any = None) -> Sequences:
        """The recording as it lies in its file: that of the fit, or another with the same choice of columns."""
        where = self.request["recordings"] if given is None else given
        if isinstance(where, list) and len(where) == 1:
            where = where[0]
        return open_data(where, dataset=self.request.get("dataset"), columns=self.request.get("columns"))

    def data(self, given: Any = None) -> Sequences:
        """The same after the preprocessing of the fit: what the model sees."""
        return self.preprocessing.apply(self.recording(given))

    def events(self, posterior: Posterior, given: Any = None, *, path: np.ndarray | None = None) -> pd.DataFrame:
        """The table of events of the recording: samples, seconds and levels as they are in the file."""
        recording = self.recording(given)
        rate = recording.rate or self.rate
        data = self.preprocessing.apply(recording)
        table = posterior.events(data, rate=rate, path=path, preprocessing=self.preprocessing)
        # The last event covers the samples left over by decimation, and no more.
        table["end"] = np.minimum(table["end"], np.diff(recording.offsets)[table["sequence"]])
        if rate is not None:
            table["end_s"] = table["end"] / rate
        return table

    def split(self) -> tuple[Sequences, Sequences | None, bool]:
        """Data that were fitted, data that were held out (or None), and whether the second continue the first."""
        held_out = float(self.request.get("held_out") or 0.0)
        data = self.data()
        return data.split(held_out) if held_out else (data, None, False)


def _wrong_entry(request: Mapping[str, Any]) -> str | None:
    """The first entry that is not of the kind that `create` was given, or None."""

    def listed(value: Any, kinds: type | tuple[type, ...]) -> bool:
        return isinstance(value, list) and all(isinstance(each, kinds) for each in value)

    def number(value: Any, least: float, most: float = float("inf")) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most

    rate, columns, held_out = request.get("rate"), request.get("columns"), request.get("held_out")
    checks = {
        "recordings": listed(request["recordings"], str),
        "dataset": isinstance(request.get("dataset"), str | None),
        "columns": columns is None or listed(columns, (str, int)),
        "rate": rate is None or (number(rate, 0.0) and 0.0 < rate < float("inf")),
        "unit": isinstance(request.get("unit"), str | None),
        "held_out": held_out is None or number(held_out, 0.0, 1.0),
    }
    checks |= {name: isinstance(request[name], dict) for name in ("preprocessing", "model", "sample")}
    return next((name for name, sound in checks.items() if not sound), None)
