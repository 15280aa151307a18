"""The recording as the page shows it: what is packed of it beside its numbers, and rates between its states."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from longhmm.posterior.names import names_and_unit
from longhmm.report.html import Safe, duration, element, hint, join, state_label, table, with_interval
from longhmm.report.plots.style import digits_for, number, with_unit
from longhmm.report.subject import Subject, pack_recording

MOST_RATES = 200


def packed(subject: Subject, live: bool) -> dict[str, Any] | None:
    """What the script of the page draws, names of features and levels of visits in the file's units included."""
    if subject.data is None:
        return None
    found = pack_recording(subject.data, subject.found, subject.levels, subject.rate, subject.model_unit, live)
    names = names_and_unit(subject.posterior, subject.data)[0]
    for name, feature in zip(names, found["features"], strict=False):
        feature |= {"name": name, "label": with_unit(name, subject.model_unit)}
    levels = np.asarray(subject.in_file_units(subject.levels[:, 0]), np.float64)
    listed = [float(level) if np.isfinite(level) else None for level in levels]
    return found | {"every": subject.every, "event_levels": listed}


def sampled(rate: float) -> str:
    """How often: slow ones by the time between samples."""
    return f"{rate:,.6g} samples per second" if rate >= 0.1 else f"a sample every {duration(1 / rate)}"


def rates_table(subject: Subject) -> Safe:
    """Rates between states, per second where the sampling rate is known."""
    posterior = subject.posterior
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same sentence is in the table's own attributes
        found = posterior.rates(rate=subject.rate)
    if not 0 < len(found) <= MOST_RATES:
        return hint(f"{len(found)} rates are not printed; posterior.rates() has them.")
    seconds = subject.rate is not None or posterior.model.transitions.dt is not None
    rows = []
    for start, end, mean, low, high in found[["from", "to", "mean", "low", "high"]].itertuples(index=False):
        label = state_label(int(start)) if isinstance(start, int | np.integer) else element("th", start, scope="row")
        digits = digits_for(low, high, 2, 6)
        rows.append([label, str(end), with_interval(*(number(float(each), digits) for each in (mean, low, high)))])
    head = ["from", "to", "rate (per second)" if seconds else "rate (per sample)"]
    warning = found.attrs.get("warning")
    notes = [hint(warning[:1].upper() + warning[1:])] if warning else []
    return join([table(head, rows, "rates"), *notes])
