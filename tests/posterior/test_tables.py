"""Tables that print all columns, to the digits of the standard deviation."""

import pandas as pd

from longhmm.posterior.tables import SummaryTable

NAMES = ["mean", "sd", "5%", "95%", "r_hat", "ess_bulk", "ess_tail"]
ROWS = {
    "mean[0]": [2.00031415, 0.0003, 1.9998234, 2.0008123, 1.00041, 4213.4, 1893.9],
    "mean[1]": [1234.5678, 51.0, 1150.2, 1320.9, 1.2, 12345.6, 88.0],
    "transition[0, 1]": [2.5e-9, 1e-10, 2.3e-9, 2.7e-9, float("nan"), float("nan"), float("nan")],
    "fixed": [0.5, 0.0, 0.5, 0.5, 1.0, 9.0, 9.0],
}


def table():
    return SummaryTable.from_dict(ROWS, orient="index", columns=NAMES)


def test_every_row_has_the_digits_of_its_sd():
    shown = table().shown()
    assert list(shown.loc["mean[0]"]) == ["2.00031", "0.00030", "1.99982", "2.00081", "1.000", "4,213", "1,894"]
    assert list(shown.loc["mean[1]"])[:5] == ["1,235", "51", "1,150", "1,321", "1.200"]
    assert list(shown.loc["transition[0, 1]"]) == [
        "0.00000000250",
        "0.00000000010",
        "0.00000000230",
        "0.00000000270",
        *[""] * 3,
    ]
    assert list(shown.loc["fixed"])[:3] == ["0.500", "0.000", "0.500"]


def test_all_columns_are_printed_however_narrow_the_terminal():
    with pd.option_context("display.width", 40, "display.max_columns", 3):
        text = str(table())
    assert all(name in text.splitlines()[0] for name in NAMES) and "..." not in text
    assert "2.00081" in table()._repr_html_()


def test_numbers_stay_numbers_and_parts_stay_tables():
    made = table()
    assert made.loc["mean[0]", "mean"] == 2.00031415
    part = made[made["sd"] > 0].drop(columns=["ess_bulk", "ess_tail"])
    assert isinstance(part, SummaryTable) and "2.00031" in str(part)
    assert "sd" not in str(made[["mean"]]) and float(made["mean"].sum()) > 1236
