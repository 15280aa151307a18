"""`longhmm rates` writes a table of rates per second."""

import json

import numpy as np
import pandas as pd
import pytest

import longhmm as lh
from cli.calls import call
from report.pages import make_run


@pytest.mark.filterwarnings("ignore:for .* of the draws")
def test_rates_are_written_per_second(tmp_path):
    run, _ = make_run(tmp_path, length=300)  # at 10 kHz
    document = json.loads(call("rates", run, "--out", tmp_path / "rates.csv", "--json"))
    table = pd.read_csv(tmp_path / "rates.csv")
    assert list(table) == ["from", "to", "mean", "sd", "low", "high"] and document["unit"] == "per second"
    expected = lh.load(run).rates(rate=10_000.0)
    np.testing.assert_allclose(table["mean"], expected["mean"], rtol=1e-8)
    assert expected["mean"][0] == pytest.approx(10_000 * 0.03, rel=0.2)
