"""Recordings that are installed with the package, small enough to travel and real enough to learn from."""

import io
from importlib.resources import files
from typing import NamedTuple

import numpy as np

# The amplifier of the nanopore record integrates the current on a capacitor, and its file holds the voltage in counts.
_COUNTS_PER_VOLT = 1e8
_SAMPLE_INTERVAL_S = 2e-6
_FEEDBACK_OHM = 9.1e9
_FEEDBACK_FARAD = 1.07e-12


class Recording(NamedTuple):
    """One measured series."""

    values: np.ndarray  # (T,) float32, in `unit`
    rate_hz: float  # samples per second
    unit: str
    description: str
    licence: str  # the notice that must stay with the data

    def __repr__(self) -> str:
        return f"Recording({self.description}: {len(self.values):,} samples in {self.unit} at {self.rate_hz:g} Hz)"


def nanopore() -> Recording:
    """The current through one nanopore while single polymer molecules block it: 499,999 samples, one second.

    The open pore carries about 136.8 pA; a molecule inside lowers that to about 48 pA for some tens of samples.
    The noise is not white: neighbouring samples have correlation 0.39.

    Example:
        >>> from longhmm.datasets import nanopore
        >>> nanopore().values.shape
        (499999,)
    """
    folder = files("longhmm") / "recordings"
    with np.load(io.BytesIO((folder / "nanopore.npz").read_bytes()), allow_pickle=False) as stored:
        # Stored are steps between neighbouring counts, low bytes and high bytes apart since that packs better.
        steps = np.ascontiguousarray(stored["count_steps"].T).view("<i2")[:, 0]
        counts = int(stored["first_count"]) + np.concatenate([[0], np.cumsum(steps, dtype=np.int64)])
    # Current = -(V / R + C dV/dt). The order of the operations is part of the record: it fixes the last bit.
    volts = counts / _COUNTS_PER_VOLT
    leak, charging = -1.0 * volts[1:] / _FEEDBACK_OHM, _FEEDBACK_FARAD * np.diff(volts) / _SAMPLE_INTERVAL_S
    return Recording(
        values=((leak - charging) * 1e12).astype(np.float32),  # in picoampere
        rate_hz=500_000.0,
        unit="pA",
        description="PEG28 blockades of a single nanopore at 500 kHz (NIST MOSAIC, SingleChan-0001.qdf)",
        licence=(folder / "nanopore.LICENSE.rst").read_text(encoding="utf-8"),
    )
