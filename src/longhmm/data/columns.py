"""Data by the names of their columns: observations, covariates, and what tells sequences apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.formats import open_source, openers
from longhmm.data.joining import alongside, join
from longhmm.data.source import Columns, Source, refusing
from longhmm.errors import DataError


def are_names(given: Any) -> bool:
    """Whether these are names of columns, not of files."""
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(each, str) for each in listed):
        return False
    return not any("://" in each or Path(each).suffix.lower() in openers() for each in listed)


def open_covariates(
    given: Any, items: list[Any], many: bool, dataset: str | None, columns: Columns, source: Source, offsets: np.ndarray
) -> Source | None:
    """What runs along with `source`: further columns of the same `items`, a table, a mapping, or arrays."""
    if given is None:
        return None
    if are_names(given):
        if columns is None:
            wanted = "columns must name the observations where covariates are columns of the same data"
            raise DataError(f"{wanted}, got None")
        return join(items, "the list", dataset, given)[0] if many else open_source(items[0], columns=given)
    if isinstance(given, Mapping):
        import pandas as pd

        with refusing("covariates could not be read as a table", "give arrays of equal length"):
            given = pd.DataFrame(dict(given))
    return alongside(given, "covariates", source, offsets, ())
