"""The baseline on the page: how far it goes, and nothing where levels stay."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

import longhmm as lh
from longhmm.report import drift


def about(emission: Any) -> Any:
    """A subject of which only the baseline is asked for."""
    middle = pd.DataFrame({"mean": np.array([-0.52, 0.1, 1.25])})
    posterior = SimpleNamespace(model=lh.HMM(2, emission), baseline=lambda: middle)
    return SimpleNamespace(posterior=posterior, rate=100.0, model_unit="pA")


def test_levels_that_stay_have_no_baseline():
    assert drift.baseline(about(lh.Gaussian())) == []


def test_it_says_how_far_levels_move(monkeypatch):
    asked = []
    monkeypatch.setattr(drift, "picture", lambda name, draw: asked.append(name) or "")
    (found,) = drift.baseline(about(lh.Gaussian(drift=4)))
    assert asked == ["baseline"] and "<h3" in found
    assert "All levels move together, by between −0.520 and 1.25 pA about their mean." in found
