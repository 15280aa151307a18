"""From a run on disk, or a posterior in hand, to a page on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.report.page import build_page
from longhmm.report.subject import Subject, look

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def report(
    posterior: Posterior,
    data: Any = None,
    path: str | os.PathLike[str] = "report.html",
    *,
    rate: float | None = None,
    unit: str = "",
    title: str | None = None,
) -> Path:
    """Write the page of a posterior to the file `path`, with the recording where `data` are given.

    Args:
        rate: samples per second, for times in seconds.
        unit: of the observations.
        title: of the page; by default the name of the data.
    """
    sequences = None if data is None else open_data(data)
    name = title or _data_name(posterior) or "A posterior"
    return write_page(look(posterior, sequences, title=name, rate=rate, unit=unit), Path(path))


def write_page(subject: Subject, place: Path) -> Path:
    """Write the page beside its place and move it there when it is whole."""
    page = build_page(subject)
    fresh = place.with_name(f".{place.name}.new")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(page, encoding="utf-8")
        os.replace(fresh, place)
    except OSError as error:
        raise DataError(f"{place} cannot be written ({error.strerror}); choose another place for the page.") from None
    return place


def _data_name(posterior: Posterior) -> str:
    described = posterior.settings.get("data")
    return str(described.get("name", "")) if isinstance(described, dict) else ""
