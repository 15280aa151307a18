"""Stopped at any block, a run goes on to the same draws bit for bit; damaged checkpoints are told, not trusted."""

import dataclasses

import numpy as np
import pytest

import longhmm as lh
from longhmm.run import checkpoint
from longhmm.run.chains import bulk_effective_size
from longhmm.run.driver import Driver
from longhmm.run.request import Request
from longhmm.run.run import Run, carry_out
from longhmm.samplers.contract import Start
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.target.coordinates import Flat
from longhmm.target.target import StreamedPosterior


@pytest.fixture(scope="module")
def problem():
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    _, counts = lh.simulate(model, params, length=30_000, seed=1)
    sequences = lh.open_data(counts)
    return model.resolve(sequences), sequences


def asked(problem, place, draws, seed=4, thin=3):
    return Request(*problem, ControlVariateSGLD(), chains=2, draws=draws, thin=thin, seed=seed, checkpoint=place)


def run(problem, place, draws=120, seed=4):
    chains = carry_out(Run(asked(problem, place, draws, seed)))
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
    def killed(*given, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "start", killed)
        with pytest.raises(KeyboardInterrupt):
            run(problem, tmp_path, draws=5)
    assert checkpoint.load(tmp_path)[0]["run"]["mapping"]["state"] is None

    def again(*given):
        raise AssertionError("tuned a second time")

    monkeypatch.setattr(ControlVariateSGLD, "tune", again)
    with pytest.raises(checkpoint.CheckpointError, match=r"the settings differ \(seed\)"):
        run(problem, tmp_path, draws=5, seed=5)
    np.testing.assert_array_equal(run(problem, tmp_path, draws=5)[0], few)


def test_a_centre_that_is_far_off_is_moved_to_the_chains(problem, tmp_path):
    """Control variates about a point four sds away: moved once, same posterior, kept on resuming."""
    model, sequences = problem
    request = asked(problem, None, 300, thin=6)
    near = Run(request, ControlVariateSGLD().tune(StreamedPosterior(model, sequences), Start(seed=4)))
    found = near.tuned.found
    centre = near.tuned.coordinates(np.eye(found.factor.shape[0])[0] * 4)
    elsewhere = dataclasses.replace(found.about(model, sequences, centre), recentred=0)
    far = Run(request, dataclasses.replace(near.tuned, tuned=elsewhere))
    straight, moved = carry_out(near), carry_out(far)
    assert "recentred" not in straight.settings and moved.settings["recentred"] == 1
    flat = Flat.like(found.mode)
    one, other = (flat.ravel_numpy(each.coordinates) for each in (straight, moved))
    sizes = [bulk_effective_size(each) for each in (one, other)]
    sd = one.std(axis=(0, 1))
    shift = (one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))) / sd
    assert np.all(np.abs(shift) < 4 * np.sqrt(1 / sizes[0] + 1 / sizes[1]))
    spread = np.sqrt(0.5 / sizes[0] + 0.5 / sizes[1])
    assert np.all(np.abs(other.std(axis=(0, 1)) / sd - 1) < 4 * spread)
    # Going on, the centre is the one it was moved to.
    longer = carry_out(dataclasses.replace(far, request=dataclasses.replace(request, draws=320)))
    np.testing.assert_array_equal(flat.ravel_numpy(longer.coordinates)[:, :300], other)
    assert np.abs(flat.ravel_numpy(longer.coordinates)[:, 300:].mean(axis=(0, 1)) - one.mean(axis=(0, 1))).max() < 1
