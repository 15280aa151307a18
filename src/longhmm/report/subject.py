"""What a page is about: a posterior, and as much of its recording as can be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longhmm.backends.stream import stream
from longhmm.data.sequences import Sequences
from longhmm.errors import LongHMMError
from longhmm.posterior.diagnostics.verdict import Verdict, verdict
from longhmm.posterior.summary import feature_levels

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior

AVERAGED_UP_TO = 100_000  # observations; in longer data parameters are known so well that their mean will do
DRAWS = 20


class Scan(NamedTuple):
    """What every observation is taken for.

    Attributes:
        path: `(T,)` most probable path at the posterior mean, in the smallest integers that hold it.
        shares: `(T, K)` uint8, `P(x_t = k | y)` in units of 1/255.
    """

    path: np.ndarray
    shares: np.ndarray

    @property
    def occupancy(self) -> np.ndarray:
        """`(K,)` share of the data that each state accounts for."""
        total = np.zeros(self.shares.shape[1])
        for start in range(0, len(self.shares), 1 << 20):
            total += self.shares[start : start + (1 << 20)].sum(axis=0, dtype=np.float64)
        return total / total.sum()


def scan(posterior: Posterior, sequences: Sequences) -> Scan:
    """Decode the data, and find the probabilities of states, averaged over draws where there are few data."""
    kind = np.min_scalar_type(posterior.model.n_states - 1)
    path = posterior.decode(sequences).astype(kind)
    if sequences.length <= AVERAGED_UP_TO:
        return Scan(path, _bytes(posterior.state_probabilities(sequences, draws=DRAWS)))
    shares = np.empty((sequences.length, posterior.model.n_states), np.uint8)
    params = posterior.model.validate(posterior.mean_params())
    for own in stream(posterior.model, params, sequences):
        shares[own.start : own.stop] = _bytes(own.probabilities)
    return Scan(path, shares)


def _bytes(probabilities: np.ndarray) -> np.ndarray:
    return np.round(255 * np.clip(np.asarray(probabilities), 0, 1)).astype(np.uint8)


@dataclass
class Subject:
    """Everything the sections of the page draw from.

    Attributes:
        data: the observations as the model sees them, or None.
        title: what the page is called, usually the name of the recording.
        rate: samples per second as the model sees them, or None.
        unit: of the observations, or "".
        undo: from the model's units to those of the file, where the recording was changed before it was fitted.
        remarks: sentences about the data: why they are missing, what was done to them.
        found: decoded path and probabilities, or None.
        events: the table of visits, or None.
    """

    posterior: Posterior
    data: Sequences | None
    title: str
    rate: float | None = None
    unit: str = ""
    undo: Any = None
    remarks: list[str] = field(default_factory=list)
    found: Scan | None = None
    events: pd.DataFrame | None = None

    @property
    def verdict(self) -> Verdict:
        """The stored verdict; if there is none, what the chains alone can say."""
        return self.posterior.verdict or verdict(self.posterior)

    @property
    def levels(self) -> np.ndarray:
        """`(K, D)` in the units of the model."""
        return feature_levels(self.posterior)

    def in_file_units(self, levels: np.ndarray) -> np.ndarray:
        return levels if self.undo is None else np.asarray(self.undo(levels))


def look(
    posterior: Posterior,
    data: Sequences | None,
    *,
    title: str,
    rate: float | None = None,
    unit: str | None = None,
    undo: Any = None,
    remarks: Sequence[str] = (),
) -> Subject:
    """Decode the data, if there are any; data that cannot be decoded are shown without states, and a remark says so."""
    subject = Subject(posterior, data, title, rate, unit or "", undo, list(remarks))
    if data is None:
        return subject
    try:
        posterior.model.check_dim(data)
        subject.found = scan(posterior, data)
        subject.events = posterior.events(data, path=subject.found.path)
    except LongHMMError as error:
        subject.found = subject.events = None
        subject.remarks.append(f"The recording could not be decoded: {error}")
    return subject
