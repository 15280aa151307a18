"""What a page is waiting for is said while it is made."""

import numpy as np

from longhmm.progress import Bar
from posterior.fakes import gaussian_model, small_posterior
from report.pages import without_buffer_report


def test_a_report_says_what_it_is_doing(tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(Bar, "phase", lambda self, text, **options: heard.append(text))
    with without_buffer_report():
        small_posterior(gaussian_model()).report(np.zeros(30), tmp_path / "p.html")
    assert heard[0] == "decoding 30 observations"
    assert {"drawing: forest", "drawing: chains", "drawing: graph"} <= set(heard)
