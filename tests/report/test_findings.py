"""What was found, in tables of the page."""

import numpy as np

import longhmm as lh
from longhmm.report.plots.style import number
from report.reading import Outline


def test_tables_hold_the_numbers(text, run):
    posterior = lh.load(run[0])
    words = " ".join(Outline(text).words)
    transition = np.asarray(posterior.draws["transition"]).reshape(-1, 2, 2).mean(axis=0)
    assert number(transition[0, 1], 2) in words
    labels = {attrs.get("aria-label") for tag, attrs in Outline(text).tags if tag == "table"}
    assert labels >= {"states", "transition probabilities per sample", "visits to states", "parameters", "settings"}
    level = np.median(np.asarray(posterior.draws["mean"])[..., 1])
    assert number(level, 3) in words
    visits = len(posterior.events(run[1]))
    assert f"{visits:,} visits" in words
