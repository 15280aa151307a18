"""The directory of a run of the command line, there before computing begins, so that a killed run can be taken up.

run.json            the request: recordings, preprocessing, model, settings of the sampler
checkpoint.npz      the tuned sampler and its chains, for going on after a stop; with .before, the one before it
posterior/          the result, as `Posterior.save` writes it
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError
from longhmm.posterior.posterior import INSIDE_RUN, Posterior, load
from longhmm.posterior.store import DOCUMENT, Place, damaged, read_json, write_text
from longhmm.run.checkpoint import locked

if TYPE_CHECKING:
    import pandas as pd

REQUEST = "run.json"
FORMAT, VERSION = "longhmm run", 1
NEEDED = ("recordings", "preprocessing", "model", "sample")


def _listed(value: Any, *kinds: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kinds) for each in value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# What the entries of a request must be.
ENTRIES: dict[str, Callable[[Any], bool]] = {
    "recordings": lambda given: _listed(given, str),
    **dict.fromkeys(("columns", "covariates"), lambda given: given is None or _listed(given, str, int)),
    "rate": lambda given: given is None or (_number(given) and 0.0 < given < float("inf")),
    **dict.fromkeys(("dataset", "group", "unit"), lambda given: isinstance(given, str | None)),
    "held_out": lambda given: given is None or (_number(given) and 0.0 <= given <= 1.0),
    **dict.fromkeys(("preprocessing", "model", "sample"), lambda given: isinstance(given, dict)),
}


class RunDirectory:
    """One run on disk; `request` is what was asked for, plain values by the names of `ENTRIES`: recordings are absolute
    paths, and rate (samples per second) and unit are those of the file."""

    def __init__(self, path: Place, request: Mapping[str, Any]) -> None:
        self.path, self.request = Path(path), dict(request)
        self.rate: float | None = self.request.get("rate")
        self.unit: str | None = self.request.get("unit")
        try:
            self.preprocessing = Preprocessing.from_dict(self.request["preprocessing"])
        except (TypeError, ValueError):
            raise damaged(f"{self.path / REQUEST} has no sound entry 'preprocessing'") from None

    @classmethod
    def create(cls, path: Place, request: Mapping[str, Any], *, overwrite: bool = False) -> RunDirectory:
        """Make the directory with its request; it must not hold anything yet, or a run that may be overwritten."""
        place = Path(path)
        if overwrite and (place / REQUEST).is_file():
            cls.open(place)  # nothing but a run is ever removed
            with locked(place):
                shutil.rmtree(place)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            further = f", go on with `longhmm resume {place}`, or replace it with --overwrite"
            held = further if (place / REQUEST).is_file() else " or remove it first"
            raise DataError(f"{place} exists already; choose another directory for the run{held}.")
        document = {"format": FORMAT, "version": VERSION, **request}
        write_text(place / REQUEST, json.dumps(document, indent=1), "choose another directory")
        return cls(place, document)

    @classmethod
    def open(cls, path: Place) -> RunDirectory:
        place, file = Path(path), Path(path) / REQUEST
        if not place.exists():
            raise DataError(f"{place} does not exist; give the directory that `longhmm fit --out` made.")
        if not file.is_file():
            raise DataError(f"{place} is not a run of `longhmm fit` (it has no {REQUEST}).")
        request = read_json(file)
        known = (request.get("format"), request.get("version")) == (FORMAT, VERSION)
        if not known or not all(key in request for key in NEEDED):
            raise DataError(f"{file} does not describe a run that this longhmm knows (version {VERSION}).")
        wrong = next((name for name, suits in ENTRIES.items() if not suits(request.get(name))), None)
        if wrong is not None:
            raise damaged(f"{file} has no sound entry {wrong!r}")
        return cls(place, request)

    @property
    def has_posterior(self) -> bool:
        return (self.path / INSIDE_RUN / DOCUMENT).is_file()

    @property
    def model_rate(self) -> float | None:
        """Samples per second as the model sees them, after decimation."""
        return None if self.rate is None else self.rate / self.preprocessing.decimate

    def posterior(self) -> Posterior:
        if not self.has_posterior:
            raise DataError(f"{self.path} has no posterior yet; finish it with `longhmm resume {self.path}`.")
        return load(self.path / INSIDE_RUN)

    def save(self, posterior: Posterior) -> None:
        posterior.save(self.path / INSIDE_RUN)

    def recording(self, given: Any = None) -> Sequences:
        """The recording as it lies in its file: that of the fit, or another with the same choice of columns."""
        where = self.request["recordings"] if given is None else given
        if isinstance(where, list) and len(where) == 1:
            where = where[0]
        return open_data(where, **{k: self.request.get(k) for k in ("dataset", "columns", "covariates", "group")})

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
