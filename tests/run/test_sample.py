"""Draws that exact gradients contradict are made again by the exact sampler."""

import dataclasses

import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.posterior.diagnostics import bias as module
from longhmm.run import sample as pipeline

PARAMS = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}


@pytest.fixture
def counts(monkeypatch):
    monkeypatch.setattr("longhmm.run.run.GRADIENTS", 1e9)  # windows, however short the data
    return lh.simulate(lh.HMM(2, lh.Poisson()), PARAMS, length=1000, seed=1)[1]


def sample(counts, **options):
    options = {"draws": 60, "chains": 2, "seed": 3, "progress": False, **options}
    return lh.sample(lh.HMM(2, lh.Poisson()), counts, **options)


def contradicted(*given):
    return "the mean of rate[0], and its interval, are off by +0.50 posterior sd"


def test_right_draws_stay(counts):
    posterior = sample(counts)
    assert posterior.settings["sampler"] == "SGLD with control variates" and posterior.notes == ()


def test_the_verdict_asks_for_no_gradient_twice(counts, monkeypatch):
    asked, answer = [], module.exact
    monkeypatch.setattr(module, "exact", lambda *given, **options: asked.append(1) or answer(*given, **options))
    posterior = sample(counts, draws=400, chains=4, progress=True)
    assert posterior.settings["sampler"] == "SGLD with control variates" and "shift" in posterior.verdict.details
    assert len(asked) == pipeline.GRADIENTS
    assert posterior.run.gradient is None


def test_states_to_spare_are_left_to_no_other_sampler(counts, monkeypatch):
    """No sampler mends them, so that draws are neither made again nor spaced for long."""
    monkeypatch.setattr(module, "bias", lambda *given: pytest.fail("another sampler would not help"))
    monkeypatch.setattr(
        "longhmm.run.run.spare_states.notes_on", lambda *given: ("too many states: fit lh.HMM(1, ...)",)
    )
    posterior = sample(counts)
    assert posterior.notes[0].startswith("too many states") and posterior.settings["sampler"].startswith("SGLD")
    run = dataclasses.replace(posterior.run, why_exact="it costs less")
    assert run.spare and run.sampler.max_tree_depth == lh.NUTS.max_tree_depth  # for so short data
    monkeypatch.setattr("longhmm.samplers.spare_states.IN_VAIN", 3e6)
    assert run.sampler.max_tree_depth == 3
    assert dataclasses.replace(run, notes=()).sampler.max_tree_depth == lh.NUTS.max_tree_depth


def test_contradicted_draws_are_made_again_and_resumed(counts, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "bias", contradicted)
    posterior = sample(counts, checkpoint=tmp_path)
    assert posterior.settings["sampler"] == "NUTS"
    assert any("exact gradients contradicted" in note and "rate[0]" in note for note in posterior.notes)
    rate = posterior.draws["rate"]
    exact = sample(counts, sampler=lh.NUTS(), draws=150)
    spread = exact.draws["rate"].std(("chain", "draw"))
    assert np.all(abs(rate.mean(("chain", "draw")) - exact.draws["rate"].mean(("chain", "draw"))) < 0.6 * spread)
    # Stopped before its first checkpoint, it goes on with the exact sampler, without looking at windows again.
    dataclasses.replace(posterior.run, state=None, bound_at=None).save()
    monkeypatch.setattr(module, "bias", lambda *given: pytest.fail("the draws of the exact sampler need no check"))
    again = sample(counts, checkpoint=tmp_path)
    np.testing.assert_array_equal(again.draws["rate"], rate)
    np.testing.assert_array_equal(again.extend(5, progress=False).draws["rate"][:, :60], rate)


@pytest.mark.parametrize("wrong", ["nutz", lh.NUTS, 3])
def test_what_is_no_sampler_is_refused(counts, wrong):
    with pytest.raises(ModelError, match=r"sampler must be a sampler such as NUTS\(\) or one of auto.*nuts.*, got"):
        sample(counts, sampler=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"sampler": lh.ControlVariateSGLD()}, {"time_limit": 1e6}, {}])
def test_a_chosen_sampler_and_long_data_are_left_alone(counts, monkeypatch, wrong):
    monkeypatch.setattr(module, "bias", contradicted)
    if not wrong:
        monkeypatch.setattr(pipeline, "MOST_ROWS", 500)
    assert sample(counts, **wrong).settings["sampler"] == "SGLD with control variates"


def test_a_verdict_is_printed_with_the_progress_bar_only(counts, capsys):
    posterior = sample(counts, progress=True)
    printed = capsys.readouterr().out
    assert posterior.verdict is not None and f"Verdict: {posterior.verdict}" in printed
    assert sample(counts).verdict is None and capsys.readouterr().out == ""
