"""Tables that fit the terminal come in parts, each of which names its rows."""

from longhmm.cli.widths import in_parts


def test_wide_tables_come_in_parts_that_each_name_their_rows():
    rows = [["row one", *(f"{i:010d}" for i in range(12))]]
    parts = list(in_parts(["name", *(f"c{i}" for i in range(12))], rows, 60))
    assert len(parts) > 1 and all(cells[0][0] == "row one" for _, cells in parts)
    assert [cell for _, cells in parts for cell in cells[0][1:]] == rows[0][1:]
    assert next(in_parts(["mean dwell (samples)"], [["1"]], 60))[0] == ["mean\ndwell\n(samples)"]
