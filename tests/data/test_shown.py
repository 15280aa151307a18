"""Data in a notebook: what they are, and what the first values are like."""

from types import SimpleNamespace

import numpy as np

import longhmm as lh
from longhmm.target.buffer_report import BufferReport, BufferReportRow


def test_data_are_shown_with_their_features(tmp_path):
    (tmp_path / "<b>.csv").write_text("step,angle\n1.5,0\n2.5,\n3.5,1\n0.5,2\n")
    page = lh.open_data(tmp_path / "<b>.csv")._repr_html_()
    assert "<b>.csv" not in page and "&lt;b&gt;.csv" in page  # text stays text
    assert "1 sequence, 4 observations, read on demand" in page
    assert "<td>step</td><td>0.5</td><td>2</td><td>3.5</td><td>0.0%</td>" in page
    assert "<td>angle</td><td>0</td><td>1</td><td>2</td><td>25.0%</td>" in page


def test_what_is_known_of_the_file_is_shown_and_long_data_in_part():
    data = lh.open_data(
        [np.zeros((9_000, 14)), np.ones((3_000, 14))], states=[np.zeros(9_000, int), np.ones(3_000, int)]
    )
    data.rate, data.unit = 100.0, "pA"
    page = data._repr_html_()
    assert "2 sequences, 12,000 observations, 100 Hz (120 s), pA, in memory, with states" in page
    assert "numbers of the first 10,000 observations" in page and "and 2 more features" in page
    assert page.count("<tr>") == 13


def test_a_feature_that_was_never_seen_has_no_numbers():
    assert "<td></td><td></td><td></td><td>100.0%</td>" in lh.open_data(np.full(5, np.nan))._repr_html_()


def test_a_buffer_report_is_a_table():
    chosen = SimpleNamespace(gap=-0.5, length=4)
    row = BufferReportRow(2, 0.1, 0.01, 1.5, 1e-3, 2e-3, 0.75, 3.0)
    page = BufferReport((row, row), chosen, 1e-3, 10, 5)._repr_html_()
    assert page.count("<tr>") == 3 and "<th>bias/sd</th>" in page and "<td>75.0%</td>" in page
    assert "<p>Lyapunov gap -0.5 per step; chosen buffer 4; 5 of 10 blocks.</p>" in page
