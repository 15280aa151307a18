"""Data by the names of their columns."""

import numpy as np
import pandas as pd
import pytest

import longhmm as lh
from longhmm.data.columns import rate_of
from longhmm.errors import DataError

RNG = np.random.default_rng(2)
TABLE = pd.DataFrame(
    {
        "ID": ["b"] * 3 + ["a"] * 2 + ["c"] * 4,
        "time": np.arange(9),
        "angle": RNG.uniform(-3, 3, 9),
        "temp": RNG.normal(10, 2, 9),
        "step": RNG.gamma(2.0, size=9),
    }
)
MOVEMENT = lh.Product(step=lh.Gamma(), angle=lh.VonMises())


@pytest.mark.parametrize("kind", ["table", "csv", "tsv", "parquet"])
def test_a_column_tells_sequences_apart(tmp_path, kind):
    data = tmp_path / f"track.{kind}"
    if kind == "table":
        data = TABLE
    elif kind == "parquet":
        TABLE.to_parquet(data)
    else:
        TABLE.to_csv(data, index=False, sep="\t" if kind == "tsv" else ",")
    found = lh.open_data(data, columns=["step", "angle"], covariates="temp", group="ID")
    np.testing.assert_array_equal(found.offsets, [0, 3, 5, 9])
    rows = found.rows(0, 9)
    np.testing.assert_allclose(rows.values, TABLE[["step", "angle"]])
    np.testing.assert_allclose(rows.covariates, TABLE[["temp"]])


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (TABLE, {"group": "animal"}, "no column 'animal'"),
        (TABLE.iloc[[0, 3, 1]], {"group": "ID"}, "returns to 'b' in row 2; sort the rows"),
        (TABLE.assign(ID=[None] * 9), {"group": "ID"}, "row 0 has none"),
        (TABLE, {"group": "ID", "lengths": [9]}, "leave out lengths"),
        ([TABLE], {"group": "ID"}, "give one table"),
    ],
)
def test_groups_that_do_not_fit_are_refused(table, options, message):
    with pytest.raises(DataError, match=message):
        lh.open_data(table, columns=["step"], **options)


def test_streams_and_variables_are_found_in_a_table():
    plain = TABLE.drop(columns="ID")
    model = lh.HMM(2, MOVEMENT, transitions="~ temp")
    seen = model.meet(plain)[1]
    np.testing.assert_array_equal(seen.rows(0, 9).values, TABLE[["step", "angle"]])
    np.testing.assert_array_equal(seen.rows(0, 9).covariates, TABLE[["temp"]])
    np.testing.assert_array_equal(lh.HMM(2, MOVEMENT).opened(plain).rows(0, 9).values, TABLE[["step", "angle"]])
    gaussian = lh.HMM(2, lh.Gaussian(), transitions="~ temp")
    np.testing.assert_array_equal(gaussian.meet(TABLE[["temp", "step"]])[1].rows(0, 9).values, TABLE[["step"]])


@pytest.mark.parametrize(
    ("model", "columns", "message"),
    [
        (lh.HMM(2, MOVEMENT), ["ID", "step", "angle"], "has a column 'ID'"),
        (lh.HMM(2, MOVEMENT), ["step", "time"], r"streams are called \['step', 'angle'\]"),
        (lh.HMM(2, lh.Gaussian(), transitions="~ temp"), ["temp", "time"], r"columns \['time'\] beside covariates"),
        (lh.HMM(2, lh.Gaussian(), transitions="~ temp"), ["temp", "step", "angle"], "of which 1 must be observed"),
    ],
)
def test_no_column_is_taken_for_another(model, columns, message):
    with pytest.raises(DataError, match=message):
        model.meet(TABLE[columns])


def test_categories_are_numbered_and_missing_ones_are_missing():
    stage = pd.Categorical(["wake", "deep", None, "wake"], categories=["wake", "light", "deep"])
    table = pd.DataFrame({"stage": stage, "moves": [True, False, True, True], "count": [1, 2, 3, 4]})
    rows = lh.open_data(table, columns=["stage", "moves"]).rows(0, 4)
    np.testing.assert_array_equal(rows.observed, [[True, True], [True, True], [False, True], [True, True]])
    np.testing.assert_array_equal(rows.values[rows.observed], [0, 1, 2, 0, 1, 0, 1])
    whole = lh.open_data(table.iloc[[0, 1, 3]], columns=["stage"]).rows(0, 3).values
    assert whole.dtype.kind == "i" and whole.ravel().tolist() == [0, 2, 0]


@pytest.mark.parametrize("form", ["seconds", "dates", "text"])
def test_a_column_of_times_gives_the_rate(tmp_path, form):
    seconds = 5.0 + 0.02 * np.arange(40)
    times = seconds if form == "seconds" else pd.Timestamp("2024-05-01 12:00") + pd.to_timedelta(seconds, "s")
    table = pd.DataFrame({"t": times, "x": RNG.normal(size=40)})
    if form == "text":
        table.to_csv(tmp_path / "table.csv", index=False)
    data = [str(tmp_path / "table.csv")] if form == "text" else table
    assert rate_of("t", data) == pytest.approx(50.0)


def test_times_that_do_not_go_on_are_refused_but_between_sequences():
    table = pd.DataFrame({"t": [0.0, 1, 2, 0, 1, 2], "ID": list("aaabbb"), "x": 0.0})
    assert rate_of("t", table, "ID") == 1.0
    with pytest.raises(
        DataError, match=r"time='t' must go on in equal steps, but row 3 comes -2 s after the one before"
    ):
        rate_of("t", table)
    with pytest.raises(DataError, match="time='x' must rise from row to row"):
        rate_of("x", table)
    with pytest.raises(DataError, match="could not be read as times"):
        rate_of("ID", table)
    with pytest.raises(DataError, match="must be a column of one file, got 2 files"):
        rate_of("t", ["a.csv", "b.csv"])
