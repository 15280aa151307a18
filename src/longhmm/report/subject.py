"""What a page is about: a posterior, and as much of its recording as can be had, decoded and packed in bins of a fixed
number of samples, with a limit for each layer: 20 million samples take about 12 MB."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longhmm.backends.stream import stream
from longhmm.data.envelopes import READ_AT_ONCE, Envelope, envelope, step_for
from longhmm.data.sequences import Sequences
from longhmm.errors import LongHMMError
from longhmm.model.summary import subsample
from longhmm.posterior.diagnostics.verdict import Verdict
from longhmm.posterior.events import visit_starts
from longhmm.posterior.names import facts_of
from longhmm.posterior.summary import feature_levels
from longhmm.report.plots.style import colour
from longhmm.report.stages import stage

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior

AVERAGED_UP_TO = 100_000  # observations; in longer data parameters are known so well that their mean will do
DRAWS = 20
TRACE_BINS = 1 << 20  # over all features together
MASK_BYTES, SHARE_BYTES = 1 << 20, 3 << 20
MOST_EVENTS = MOST_ENDS = 100_000
MOST_TRACKS = 16  # features with a panel of their own
MISSING = 65535  # the code of a bin in which nothing was observed; others go from 0 to 65534


class Scan(NamedTuple):
    """What every observation is taken for."""

    path: np.ndarray  # (T,) most probable path at the posterior mean, in the smallest integers that hold it
    shares: np.ndarray  # (T, K) uint8, P(x_t = k | y) in units of 1/255

    @property
    def occupancy(self) -> np.ndarray:
        """`(K,)` share of the data that each state accounts for."""
        total = self.shares.sum(axis=0, dtype=np.int64)
        return np.asarray(total / total.sum())


def scan(posterior: Posterior, sequences: Sequences) -> Scan:
    """Decode the data, and find the probabilities of states, averaged over draws where there are few data."""
    path = posterior.decode(sequences).astype(np.min_scalar_type(posterior.model.n_states - 1))
    if sequences.length <= AVERAGED_UP_TO:
        return Scan(path, _bytes(posterior.state_probabilities(sequences, draws=DRAWS)))
    shares = np.empty((sequences.length, posterior.model.n_states), np.uint8)
    for own in stream(posterior.model, posterior.mean_params(), sequences):
        shares[own.start : own.stop] = _bytes(own.probabilities)
    return Scan(path, shares)


def _bytes(probabilities: np.ndarray) -> np.ndarray:
    return np.round(255 * np.clip(np.asarray(probabilities), 0, 1)).astype(np.uint8)


@dataclass
class Subject:
    """Everything the sections of the page draw from."""

    posterior: Posterior
    data: Sequences | None  # as the model sees them
    title: str
    rate: float | None = None  # samples per second as the model sees them
    unit: str = ""  # of the observations
    every: int = 1  # samples of the file to one that the model sees
    in_file_units: Callable[[np.ndarray], Any] = np.asarray  # from the model's units, where they differ
    notes: list[str] = field(default_factory=list)  # about the data: why they are missing, what was done to them
    found: Scan | None = None  # None where the data cannot be decoded; a note says so
    events: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        if self.data is None or self.found is not None:
            return
        stage(f"decoding {self.data.length:,} observations")
        try:
            self.posterior.model.check_dim(self.data)
            found = scan(self.posterior, self.data)
            self.events = self.posterior.events(self.data, path=found.path)
            self.found = found
        except LongHMMError as error:
            self.notes.append(f"The recording could not be decoded: {error}")

    @property
    def verdict(self) -> Verdict:
        """The stored verdict; if there is none, what the chains alone can say."""
        return self.posterior.verdict or copy.copy(self.posterior).diagnose()

    @cached_property
    def levels(self) -> np.ndarray:
        """`(K, D)` in the units of the model."""
        return feature_levels(self.posterior)

    @property
    def model_unit(self) -> str:
        """Values that were changed before the fit are no longer in the unit of the file."""
        changed = self.data.unit or "" if self.data is not None else ""
        return self.unit if self.in_file_units is np.asarray else changed


def data_name(posterior: Posterior) -> str:
    """What a posterior calls its data; empty where it does not know."""
    return str(facts_of(posterior).get("name", ""))


class Range(NamedTuple):
    """Of one feature: smallest and largest value, and the part of that range which the picture shows at first."""

    low: float
    high: float
    view: tuple[float, float]


def ranges(sequences: Sequences, levels: np.ndarray) -> list[Range]:
    """The range of each feature that is shown; outliers far from everything else are left out of the first view."""
    bounds, values, found = envelope(sequences, bins=1), subsample(sequences), []
    for feature in range(min(sequences.dim, MOST_TRACKS)):
        low, high = float(bounds.low[0, feature]), float(bounds.high[0, feature])
        known = values[:, feature][np.isfinite(values[:, feature])]
        if not np.isfinite(low):
            low, high = 0.0, 1.0
        if low == high:
            low, high = low - 0.5, high + 0.5
        view = (low, high)
        if len(known):
            near = [*np.quantile(known, [0.0005, 0.9995]), *levels[:, feature : feature + 1].ravel()]
            width = max(near) - min(near)
            if 0 < 2.5 * width < high - low:
                view = (float(min(near) - 0.2 * width), float(max(near) + 0.2 * width))
        room = 0.04 * (view[1] - view[0])
        found.append(Range(low, high, (view[0] - room, view[1] + room)))
    return found


def pack_stretch(
    sequences: Sequences, found: Scan | None, scales: list[Range], start: int, stop: int, bins: int
) -> dict[str, Any]:
    """The rows `[start, stop)`: smallest and largest values, states visited and their mean probabilities, by bin."""
    bounds = envelope(sequences, start, stop, bins=max(1, bins // len(scales)))
    features = [_codes(bounds, feature, scale) for feature, scale in enumerate(scales)]
    packed: dict[str, Any] = {"start": start, "stop": stop, "step": bounds.step, "features": features}
    if found is None:
        return packed | {"masks": [], "shares": [], "mask_step": 1, "share_step": 1}
    path, shares = found.path[start:stop], found.shares[start:stop]
    n_states = shares.shape[1]
    planes = -(-n_states // 8)
    mask_step = step_for(stop - start, min(bins, MASK_BYTES // planes))
    share_step = step_for(stop - start, min(bins, SHARE_BYTES // n_states))
    # The last state has what the others leave.
    means = _by_bin(shares[:, :-1], share_step, _means)
    return packed | {
        "masks": [_pack(_by_bin(path, mask_step, partial(_visited, plane))) for plane in range(planes)],
        "shares": [_pack(np.ascontiguousarray(column)) for column in means.T],
        "mask_step": mask_step,
        "share_step": share_step,
    }


def pack_recording(
    sequences: Sequences, found: Scan | None, levels: np.ndarray, rate: float | None, unit: str, live: bool = False
) -> dict[str, Any]:
    scales, ends = ranges(sequences, levels), sequences.offsets[1:-1]
    starts, states = np.zeros((2, 0), np.int64)
    if found is not None:
        starts = visit_starts(found.path, sequences.offsets)
        states = found.path[starts]
    shown = min(len(starts), MOST_EVENTS)
    return dict(length=sequences.length, rate=rate, unit=unit, live=live, levels=levels.tolist()) | {
        "features": [scale._asdict() for scale in scales],
        "colours": [colour(state) for state in range(len(levels))],
        "ends": (ends if len(ends) <= MOST_ENDS else ends[:0]).tolist(),
        "stretch": pack_stretch(sequences, found, scales, 0, sequences.length, TRACE_BINS),
        "visits": {
            "start": _pack(starts[:shown].astype(np.uint32 if sequences.length < 2**32 else np.float64)),
            "state": _pack(states[:shown].astype(np.uint8 if len(levels) <= 256 else np.uint16)),
            "complete": shown == len(starts),
            "end": int(starts[shown]) if shown < len(starts) else sequences.length,
        },
    }


def _codes(bounds: Envelope, feature: int, scale: Range) -> dict[str, Any]:
    low, high = (
        np.round((side[:, feature] - scale.low) / (scale.high - scale.low) * (MISSING - 1))
        for side in (bounds.low, bounds.high)
    )
    missing = np.isnan(low)
    packed = {"low": _pack(np.where(missing, MISSING, low).astype(np.uint16))}
    if bounds.step > 1 or missing.any():
        packed["high"] = _pack(np.where(missing, 0, high).astype(np.uint16))
    return packed


def _by_bin(rows: np.ndarray, step: int, reduce: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """What `reduce` makes of rows and the places where bins of `step` rows begin, many bins at a time."""
    size = max(step, READ_AT_ONCE // step * step)
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    return np.concatenate([reduce(part, np.arange(0, len(part), step)) for part in parts])


def _visited(plane: int, path: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Bit `k` is set where state `8 plane + k` occurs in the bin."""
    return np.asarray(np.bitwise_or.reduceat(np.where(path >> 3 == plane, 1 << (path & 7), 0).astype(np.uint8), cuts))


def _means(shares: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    counts = np.diff(np.append(cuts, len(shares)))[:, None]
    return np.round(np.add.reduceat(shares, cuts, axis=0, dtype=np.int64) / counts).astype(np.uint8)


def _pack(array: np.ndarray) -> dict[str, str]:
    little = array.astype(array.dtype.newbyteorder("<"))
    return {"kind": array.dtype.str[1:], "data": base64.b64encode(little.tobytes()).decode("ascii")}
