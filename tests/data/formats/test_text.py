"""Delimited text files: layout, missing fields, integers, and errors with their place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhmm.data.formats import open_source
from longhmm.data.formats import text as text_format
from longhmm.data.sequences import open_data
from longhmm.errors import DataError

NAN = np.nan


@pytest.fixture
def write(tmp_path):
    def _write(text: str | bytes, name: str = "t.csv"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return _write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5,2\n3,4\n", [[1.5, 2], [3, 4]]),
        ("a,b\n1.5,2\n3,4", [[1.5, 2], [3, 4]]),
        ("a;b\r\n1.5;2\r\n3;4\r\n\r\n", [[1.5, 2], [3, 4]]),
        ("a\tb\n1.5\t\n\tNA\n", [[1.5, NAN], [NAN, NAN]]),
        ("1.5|nan\n3|NaN\n", [[1.5, NAN], [3, NAN]]),
        ("# made by hand\n\n1.5  2\n  3   4\n", [[1.5, 2], [3, 4]]),
        ("current (pA)\n1.5\n\n2.5\n\n\n", [[1.5], [NAN], [2.5]]),
        ('"x, y"\n"1.5"\n2e3\n', [[1.5], [2000]]),
        ("\ufefft,v\n1.5,2\n", [[1.5, 2]]),
        (" 1.5 , n/a \n , 4\n", [[1.5, NAN], [NAN, 4]]),
        ("-1.5e-3\n+inf\n", [[-0.0015], [np.inf]]),
        ("t;pA\n0,5;1\n1;-2,25e1\n;,5\n1,5;0\n", [[0.5, 1], [1, -22.5], [NAN, 0.5], [1.5, 0]]),
        ("0,5\t1,25\n2\t3\n4,5\t6\n", [[0.5, 1.25], [2, 3], [4.5, 6]]),
    ],
)
def test_layouts(write, text, expected):
    source = open_source(write(text))
    assert source.dtype == np.float64 and source.length == len(expected)
    np.testing.assert_array_equal(source.read(0, source.length), expected)
    for row in range(source.length):
        np.testing.assert_array_equal(source.read(row, row + 1), expected[row : row + 1])


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("1,2\n-3,+4\n", None, [[1, 2], [-3, 4]]),
        ("t,n\n0.1,5\n0.2,6\n", "n", [[5], [6]]),
        ('t,n\n0.1,"5"\n0.2, 6 \n', ["n"], [[5], [6]]),
        ("7\n8\n\n", None, [[7], [8]]),
        ("1 2\n3 4\n", 1, [[2], [4]]),
    ],
)
def test_whole_numbers_stay_integer(write, text, columns, expected):
    source = open_source(write(text), columns=columns)
    assert source.dtype == np.int64
    np.testing.assert_array_equal(source.read(0, source.length), expected)


@pytest.mark.parametrize(
    "text", ["1,2\n,4\n", "1,2\n3,\n", "1\n\n3\n", "1,2\n3, \n", "1\n  \n3\n", '1\n""\n3\n', "\t2\n", "1,2\nNA,4"]
)
def test_whole_numbers_with_gaps_are_floats(write, text):
    source = open_source(write(text))
    assert source.dtype == np.float64
    assert np.isnan(source.read(0, source.length)).sum() == 1


def test_a_blank_line_in_a_one_column_tsv_is_missing(write):
    np.testing.assert_array_equal(open_source(write("1\n\n3\n", "t.tsv")).read(0, 3), [[1], [NAN], [3]])


def test_columns_by_name_and_position(write):
    path = write("time,level,note\n0,1.5,x\n1,2.5,y\n")
    np.testing.assert_array_equal(open_source(path, columns=["level", "time"]).read(0, 2), [[1.5, 0], [2.5, 1]])
    np.testing.assert_array_equal(open_source(path, columns=1).read(0, 2), [[1.5], [2.5]])
    with pytest.raises(DataError, match=r"t.csv has no column 'x'; columns= must be taken from \['time', 'level', "):
        open_source(path, columns="x")
    with pytest.raises(DataError, match=r"row 0 \(line 2\) of .*t.csv has 'x' in column 'note', .*columns="):
        open_source(path).read(0, 2)


def test_a_long_file_is_indexed_sparsely(write):
    values = np.random.default_rng(1).normal(size=(5000, 2))
    path = write("a,b\n" + "".join(f"{x!r},{y!r}\n" for x, y in values.tolist()))
    source = open_source(path)
    for start, stop in [(0, 1), (255, 257), (256, 512), (4999, 5000), (1000, 4000), (5000, 5000)]:
        np.testing.assert_array_equal(source.read(start, stop), values[start:stop])


def test_only_the_rows_asked_for_are_parsed(write):
    source = open_source(write("1.0\n" * 1000 + "oops\n" + "2.0\n" * 1000))
    np.testing.assert_array_equal(source.read(0, 1000), np.ones((1000, 1)))
    np.testing.assert_array_equal(source.read(1001, 2001), np.full((1000, 1), 2.0))
    with pytest.raises(DataError, match=r"row 1000 \(line 1001\) of .*t.csv has 'oops' in column '0', which must be a"):
        source.read(990, 1010)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n4,5\n", r"row 1 \(line 3\) of .*t.csv has 1 fields but must have 2.*mend or remove that line"),
        ("a,b\n1,2\n3,4,5\n", r"row 1 \(line 3\) of .*t.csv has 3 fields but must have 2"),
        ("a,b\n1,2\n\n3,4\n", r"row 1 \(line 3\) of .*t.csv has 1 fields but must have 2"),
        ("1.5,2.0x\n3,4\n", r"row 0 \(line 1\) of .*t.csv has '2.0x' in column '1'.*leave it empty if missing"),
        ("a\n2020-01-01\n", r"row 0 \(line 2\) of .*t.csv has '2020-01-01' in column 'a'"),
        ("a\n1_000\n", r"'1_000' in column 'a', which must be a number"),
        ("a\n99999999999999999999\n", r"row 0 .*beyond 64-bit integers; write it as 99999999999999999999\.0"),
    ],
)
def test_rows_that_cannot_be_read(write, text, message):
    source = open_source(write(text))
    with pytest.raises(DataError, match=message):
        source.read(0, source.length)


@pytest.mark.parametrize("text", ["", "a,b\n", "a\n\n\n", "# only\n"])
def test_no_rows(write, text):
    with pytest.raises(DataError, match=r"t.csv is empty \(no rows.*pass .*at least one observation"):
        open_data(write(text))


def test_not_plain_text(write):
    with pytest.raises(DataError, match=r"t.txt is not plain text \(byte 0 on line 1\); save it as UTF-8"):
        open_source(write("a,b\n1,2\n".encode("utf-16"), "t.txt"))


def test_a_file_that_shrinks(write):
    path = write("1.5\n" * 100)
    source = open_source(path)
    assert source.length == 100
    path.write_text("1.5\n" * 40)
    with pytest.raises(DataError, match=r"t.csv ended early, at row 40 of 100: it was changed while in use"):
        source.read(10, 90)


fields = st.sampled_from(["1", "-22", "+3", "0.5", "", "NA", " 7 ", '"8"'])


def _tables(width: int) -> st.SearchStrategy[list[list[str]]]:
    return st.lists(st.lists(fields, min_size=width, max_size=width), min_size=1)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 3).flatmap(_tables),
    chunk=st.integers(1, 40),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_scan_agrees_with_a_plain_loop_whatever_the_chunk(tmp_path_factory, rows, chunk, newline):
    """The header and a last row of plain numbers keep width and trailing blank lines beyond doubt."""
    width = len(rows[0])
    rows = [*rows, ["4"] * width]
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    text = newline.join([",".join("abc"[:width]), *(",".join(row) for row in rows)]) + newline
    path.write_bytes(text.encode())
    expected = [[NAN if f.strip(' "') in ("", "NA") else float(f.strip(' "')) for f in row] for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_format, "_CHUNK", chunk)
        patch.setattr(text_format, "ROWS_PER_MARK", 3)
        source = open_source(path)
        assert source.length == len(rows)
        assert (source.dtype.kind == "i") == all(f.strip(' "').lstrip("+-").isdigit() for row in rows for f in row)
        for start in range(len(rows)):
            np.testing.assert_array_equal(source.read(start, len(rows)), expected[start:])
