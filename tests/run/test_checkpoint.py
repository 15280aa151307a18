"""Stopped at any block, a run goes on to the same draws bit for bit; damaged checkpoints are told, not trusted."""

import dataclasses

import numpy as np
import pytest

import longhmm as lh
from longhmm.progress import Bar
from longhmm.run import checkpoint, recentring
from longhmm.run.driver import Driver
from longhmm.run.effective_size import bulk_effective_size
from longhmm.run.session import Request, find_tuning, run_session
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.target.control_variate import count_control
from longhmm.target.coordinates import Flat, constrain


@pytest.fixture(scope="module")
def problem():
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    _, counts = lh.simulate(model, params, length=30_000, seed=1)
    sequences = lh.open_data(counts)
    return model.resolve(sequences), sequences


def run(problem, place, draws=120, seed=4):
    model, sequences = problem
    request = Request(
        model, sequences, ControlVariateSGLD(), None, None, 2, draws, None, 3, None, seed, None, place, 0.0
    )
    found = find_tuning(request, Bar(False))
    chains = run_session(request, Bar(False), found)
    return Flat.like(chains.mode).ravel_numpy(chains.coordinates), chains


@pytest.fixture(scope="module")
def few(problem, tmp_path_factory):
    """The first five draws of the run that the tests below stop early."""
    return run(problem, tmp_path_factory.mktemp("few"), draws=5)[0]


def test_resumed_draws_are_the_same_bit_for_bit(problem, tmp_path, monkeypatch):
    whole, _ = run(problem, tmp_path / "whole")
    assert np.abs(whole[0] - whole[1]).max() > 1e-6  # the chains of one run are not the same
    blocks = []
    take = Driver._take

    def interrupted(self, progressed, outcome, steps, record):
        take(self, progressed, outcome, steps, record)
        blocks.append(steps == 20 * 3)  # after the warm-up, whose steps are not thinned
        if sum(blocks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("longhmm.run.driver.block_size", lambda *_: 20 * 3)  # whatever the clock says
    monkeypatch.setattr(Driver, "_take", interrupted)
    partial, chains = run(problem, tmp_path / "cut")
    assert 0 < partial.shape[1] < 120 and any("Ctrl-C" in note for note in chains.notes)
    monkeypatch.setattr(Driver, "_take", take)
    resumed, _ = run(problem, tmp_path / "cut")
    np.testing.assert_array_equal(resumed, whole)
    # A finished run asked for more draws goes on.
    longer, _ = run(problem, tmp_path / "cut", draws=140)
    np.testing.assert_array_equal(longer[:, :120], whole)


def test_a_stop_before_the_first_draw_leaves_a_run_that_can_be_taken_up(problem, few, tmp_path, monkeypatch):
    take = Driver._take

    def interrupted(self, progressed, outcome, steps, record):
        if record:
            raise KeyboardInterrupt
        take(self, progressed, outcome, steps, record)

    monkeypatch.setattr(Driver, "_take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(problem, tmp_path / "cut", draws=5)
    monkeypatch.setattr(Driver, "_take", take)
    np.testing.assert_array_equal(run(problem, tmp_path / "cut", draws=5)[0], few)


def test_a_stop_before_the_warm_up_keeps_the_tuning(problem, few, tmp_path, monkeypatch):
    model, sequences = problem
    request = Request(model, sequences, ControlVariateSGLD(), None, None, 2, 5, None, 3, None, 4, None, tmp_path, 0.0)
    find_tuning(request, Bar(False))
    assert not (tmp_path / checkpoint.NAME).exists()

    def again(*args, **options):
        raise AssertionError("tuned a second time")

    monkeypatch.setattr("longhmm.run.tuning.tune", again)
    np.testing.assert_array_equal(run(problem, tmp_path, draws=5)[0], few)
    with pytest.raises(checkpoint.CheckpointError, match=r"the settings differ \(seed\)"):
        find_tuning(dataclasses.replace(request, seed=5, checkpoint=_only_tuning(tmp_path)), Bar(False))


def _only_tuning(place):
    (place / checkpoint.NAME).unlink()
    (place / (checkpoint.NAME + checkpoint.BEFORE)).unlink()
    return place


def test_a_centre_that_is_far_off_is_moved_to_the_chains(problem, tmp_path):
    """Control variates about a point four sds away: moved once, same posterior, kept on resuming."""
    model, sequences = problem
    asked = [model, sequences, ControlVariateSGLD(), None, None, 2, 300, None, 6, None, 4, None, None, 0.0]
    request = Request(*asked)
    found = find_tuning(request, Bar(False))
    whitened = np.eye(found.estimator.factor.shape[0])[:1] * 4
    far = recentring.centre_of(found, whitened[None])
    slope = recentring.exact_slope(model, far, sequences)
    elsewhere = recentring.recentred(found, far, slope, count_control(model, constrain(model, far), sequences))
    straight, moved = (run_session(request, Bar(False), each) for each in (found, elsewhere))
    assert "recentred" not in straight.settings and moved.settings["recentred"] == 1
    flat = Flat.like(found.mode.coordinates)
    one, other = (flat.ravel_numpy(each.coordinates) for each in (straight, moved))
    sizes = [bulk_effective_size(each) for each in (one, other)]
    sd = one.std(axis=(0, 1))
    shift = (one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))) / sd
    assert np.all(np.abs(shift) < 4 * np.sqrt(1 / sizes[0] + 1 / sizes[1]))
    spread = np.sqrt(0.5 / sizes[0] + 0.5 / sizes[1])
    assert np.all(np.abs(other.std(axis=(0, 1)) / sd - 1) < 4 * spread)
    # Going on, the centre is the one it was moved to.
    longer = run_session(dataclasses.replace(request, draws=320), Bar(False), found, moved.stored)
    np.testing.assert_array_equal(flat.ravel_numpy(longer.coordinates)[:, :300], other)
    assert np.abs(flat.ravel_numpy(longer.coordinates)[:, 300:].mean(axis=(0, 1)) - one.mean(axis=(0, 1))).max() < 1


def test_what_counts_as_drift():
    rng = np.random.default_rng(0)
    at_rest = rng.normal(size=(4, 100, 3))
    assert not recentring.drifted(at_rest, 2)
    skewed = np.log(rng.exponential(size=(4, 100, 3)))  # the most skewed coordinate there is, about its mode
    assert not recentring.drifted(skewed, 2)
    together = np.log(rng.exponential(size=(4, 100, 7))).sum(axis=2, keepdims=True) / np.sqrt(7)
    assert not recentring.drifted(together, 8)  # a whole row that was never seen, along its common direction
    assert recentring.drifted(at_rest + np.array([0.0, -2.0, 0.0]), 2)
    apart = at_rest + 3 * np.array([1, -1, 1, 1])[:, None, None]  # separate modes are another matter
    assert not recentring.drifted(apart, 2)
