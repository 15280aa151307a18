"""Data by the names of their columns: observations, covariates, and what tells sequences apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.formats import open_source, openers
from longhmm.data.joining import alongside, join
from longhmm.data.source import Columns, Source, column_indices, refusing
from longhmm.errors import DataError

STEADY = 0.01  # by how much of a step times may be off: clocks are rounded
ALIKE = 2.0**-32  # share of themselves by which numbers of rows that are alike may differ, as differences of times do
LOOKED_AT = 4096  # rows that tell whether it is worth looking at all of them


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


def lengths_of(group: str, data: Any, lengths: Any) -> np.ndarray:
    """Lengths of the runs of equal values in the column `group` of a table or file: every run is a sequence."""
    import pandas as pd

    if lengths is not None or isinstance(data, list | tuple):
        raise DataError(f"group={group!r} cuts one table or file into sequences; leave out lengths, and give one table")
    values = whole_column(group, data, "group")
    if bool(values.isna().any()):
        raise DataError(
            f"group={group!r} must say of every row to which sequence it belongs, but row "
            f"{int(np.argmax(values.isna()))} has none; fill it in"
        )
    codes = pd.factorize(values)[0]
    begins = np.flatnonzero(np.diff(codes, prepend=-1))
    returned = pd.Series(codes[begins]).duplicated()
    if returned.any():
        row = int(begins[int(np.argmax(returned))])
        raise DataError(f"group={group!r} returns to {values.iloc[row]!r} in row {row}; sort the rows by it first")
    return np.diff([*begins, len(codes)])


def whole_column(name: str, data: Any, what: str) -> Any:
    """One column of a table, a text or a Parquet file, as pandas has it; of text the words as they stand there."""
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        column_indices([name], list(data.columns), "the table")
        return data[name]
    if Path(data).suffix.lower() == ".parquet":
        with refusing(f"column {name!r} of {data} could not be read", "name a column of the file"):
            return pd.read_parquet(data, columns=[name])[name]
    source: Any = open_source(data, columns=name)
    if not hasattr(source, "_delimiter"):
        raise DataError(f"{what}={name!r} must name a column of a table, a text or a Parquet file, not of {data}")
    how = {"sep": source._delimiter or r"\s+", "comment": "#", "skipinitialspace": True}
    return pd.read_csv(data, usecols=[name], dtype=str, keep_default_na=False, **how)[name]


def rate_of(time: str, data: Any, group: str | None = None) -> float:
    """Samples per second, from a column of times in seconds or of dates, which must go on in equal steps."""
    import pandas as pd

    if isinstance(data, list | tuple):
        if len(data) != 1:
            raise DataError(f"time={time!r} must be a column of one file, got {len(data)} files; give the rate instead")
        data = data[0]
    values = whole_column(time, data, "time")
    numbers = values if values.dtype.kind == "M" else pd.to_numeric(values, errors="coerce")
    if values.dtype.kind == "M" or numbers.isna().any():
        with refusing(f"column {time!r} could not be read as times", "give seconds, or dates such as 2024-05-01 12:00"):
            numbers = (pd.to_datetime(values, format="mixed") - pd.Timestamp(0)) / pd.Timedelta(1, "s")
    steps = np.diff(numbers.to_numpy(np.float64))
    inside = np.ones(len(steps), bool)
    if group is not None:  # from one sequence to the next time may do as it likes
        inside[np.cumsum(lengths_of(group, data, None))[:-1] - 1] = False
    usual = float(np.median(steps[inside])) if inside.any() else 0.0
    if not usual > 0:
        raise DataError(
            f"time={time!r} must rise from row to row, but its usual step is {usual:g}; choose another column"
        )
    odd = np.flatnonzero(inside & ~(np.abs(steps - usual) <= STEADY * usual))
    if odd.size:
        raise DataError(
            f"time={time!r} must go on in equal steps, but row {odd[0] + 1} comes {steps[odd[0]]:g} s after the one "
            f"before and others after {usual:g} s; fill gaps with empty rows, or leave the column out"
        )
    return 1.0 / usual


class NoColumns(Source):
    """No columns of so many rows, for models that look at nothing but the number of a row."""

    dim, dtype, names = 0, np.dtype(np.float64), ()

    def __init__(self, name: str, length: int) -> None:
        self.name, self.length = name, length

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return np.empty((stop - start, 0))


NOT_OBSERVED = {"id", "time", "date", "datetime", "timestamp", "index"}  # what columns of tables are often called


def names_in_table(table: Any, streams: Any, variables: list[str], dim: int) -> dict[str, Any]:
    """Which columns of a table are observations, and which are covariates; or a refusal where that is a guess."""
    names = list(map(str, table.columns))
    remedy = "say it by open_data(table, columns=[...], covariates=[...], group=...)"
    if any(name.lower() == "id" for name in names):
        raise DataError(
            f"the table has a column {next(n for n in names if n.lower() == 'id')!r}, and a sequence for "
            f"each of its values is not the same as one for all; {remedy}"
        )
    if streams:
        missing = [name for name in streams if name not in names]
        if missing or len(streams) != dim:
            raise DataError(f"the table has columns {names}, but streams are called {list(streams)}; {remedy}")
        return {"columns": list(streams), "covariates": variables or None}
    rest = [name for name in names if name not in variables]
    if len(rest) != dim or any(name.lower() in NOT_OBSERVED for name in rest):
        raise DataError(f"the table has columns {rest} beside covariates, of which {dim} must be observed; {remedy}")
    return {"columns": rest, "covariates": variables or None}


def distinct(columns: np.ndarray, most: int) -> tuple[list[int], np.ndarray] | None:
    """The first of all rows that are alike, and `(n,)` which of these each row is; None where they are more than
    `most`."""
    mantissa, exponent = np.frexp(columns.astype(np.float64))
    columns = np.ldexp(np.rint(mantissa / ALIKE), exponent)
    few = np.unique(columns[:: max(1, len(columns) // LOOKED_AT)], axis=0)
    index, left = np.full(len(columns), -1, np.int32), np.arange(len(columns))
    found: list[int] = []
    while len(left) and len(few) <= most and len(found) <= most:
        at = int(left[0])
        same = np.all(columns[left] == columns[at], axis=1)
        index[left[same]] = len(found)
        left, found = left[~same], [*found, at]
    return None if len(left) or len(found) > most else (found, index)
