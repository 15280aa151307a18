"""Tables that fit the terminal, rates in a file, and starts of which a part is given."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import longhmm as lh
from cli.test_commands import call
from longhmm.cli.output import Output
from longhmm.cli.widths import in_parts
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.run.partial_start import whole_init
from report.pages import make_run


def test_no_number_is_cut_on_a_narrow_terminal():
    said, file = Output(False), io.StringIO()
    said.console = Console(file=file, width=80)
    rows = [(f"{n} states", n, -123456.789012, 8.333333e-12, -1.23456789, -1234.5678, 8.333333e-09) for n in (1, 2)]
    said.table(
        "Models", ["model", "n_states", "log_density", "mc_error", "per observation", "difference", "error"], rows
    )
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in file.getvalue()
    assert file.getvalue().count("8.333e-12") == 2 and file.getvalue().count("8.333e-09") == 2


def test_wide_tables_come_in_parts_that_each_name_their_rows():
    rows = [["row one", *(f"{i:010d}" for i in range(12))]]
    parts = list(in_parts(["name", *(f"c{i}" for i in range(12))], rows, 60))
    assert len(parts) > 1 and all(cells[0][0] == "row one" for _, cells in parts)
    assert [cell for _, cells in parts for cell in cells[0][1:]] == rows[0][1:]
    assert next(in_parts(["mean dwell (samples)"], [["1"]], 60))[0] == ["mean\ndwell\n(samples)"]


@pytest.mark.filterwarnings("ignore:for .* of the draws")
def test_rates_are_written_per_second(tmp_path):
    run, _ = make_run(tmp_path, length=300)  # at 10 kHz
    document = json.loads(call("rates", run, "--out", tmp_path / "rates.csv", "--json"))
    table = pd.read_csv(tmp_path / "rates.csv")
    assert list(table) == ["from", "to", "mean", "sd", "low", "high"] and document["unit"] == "per second"
    expected = lh.load(run).rates(rate=10_000.0)
    np.testing.assert_allclose(table["mean"], expected["mean"], rtol=1e-8)
    assert expected["mean"][0] == pytest.approx(10_000 * 0.03, rel=0.2)


def test_a_start_may_leave_parameters_out():
    values = np.concatenate([np.zeros(50), np.full(50, 9.0)]) + np.random.default_rng(0).normal(size=100)
    data = open_data(values)
    model = lh.HMM(2, lh.Gaussian()).resolve(data)
    found = whole_init(model, data, {"mean": [1.0, 8.0]})
    assert list(found["mean"]) == [1.0, 8.0]
    model.validate(found)  # complete
    with pytest.raises(ModelError, match=r"init must hold parameters of the model, .*, got 'means'\."):
        whole_init(model, data, {"means": [1.0, 8.0]})


def test_priors_are_shown_with_their_numbers():
    import numpyro.distributions as dist

    emission = lh.Emission(dist.Normal, loc=dist.Normal(0, 50), scale=dist.HalfNormal(5))
    assert repr(emission) == "Emission(Normal, loc=Normal(0, 50), scale=HalfNormal(5))"
    assert "Normal(0, 50)" in lh.HMM(2, emission)._repr_html_()
