"""Time limits and Ctrl-C are promises, whatever runs when they come."""

import signal
import threading
import time

import numpy as np
import pytest

import longhmm as lh
from longhmm.posterior.diagnostics import bias, verdict
from longhmm.run import driver, run, sample
from longhmm.run.limit import Abandoned, Limit, TimeIsOver
from longhmm.samplers import contract, full_data_hmc, mode
from longhmm.samplers import control_variate_sgld as tuning

PARAMS = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
SOON = 20.0  # seconds: far less than what the slow phases below would take, on a busy machine too


class Clock:
    """A clock that stands still until it is told to jump."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def stuck():
    """Work that no one can interrupt, as a long compilation is; it ends with the test."""
    end = threading.Event()
    yield lambda *_, **__: end.wait(300)
    end.set()


# The limit itself ---------------------------------------------------------------------------------------------------


def test_results_and_errors_come_back():
    limit = Limit(100.0)
    assert limit.run(lambda: 3, "counting") == 3
    assert limit.run_all([lambda n=n: n for n in range(5)], "counting") == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        limit.run_all([lambda: 1, lambda: 1 // 0], "dividing")
    assert Limit().left == float("inf")


def test_the_end_is_not_waited_for(stuck):
    began = time.monotonic()
    with pytest.raises(TimeIsOver, match=r"0.2 seconds were over while doing nothing"):
        Limit(0.2).run(stuck, "doing nothing")
    assert time.monotonic() - began < SOON


def test_work_that_looks_ends_soon_after():
    limit, ended = Limit(0.1), threading.Event()

    def work():
        try:
            while True:
                limit.check()
                time.sleep(0.01)
        except Abandoned:
            ended.set()

    with pytest.raises(TimeIsOver):
        limit.run(work, "looking")
    assert ended.wait(SOON)


def test_grace_and_shares_of_the_time():
    clock = Clock()
    limit = Limit(10.0, clock)
    sooner = limit.sooner(0.25)
    clock.now = 8.0
    assert limit.left == pytest.approx(2.0) and sooner.left == pytest.approx(-0.5)
    with pytest.raises(TimeIsOver):
        sooner.run(lambda: time.sleep(1.0), "sleeping")
    assert limit.sooner(0.0).run(lambda: time.sleep(0.3) or 7, "sleeping", grace=1.0) == 7
    clock.now = 10.5
    assert limit.run(lambda: time.sleep(0.3) or 8, "sleeping", grace=1.0) == 8


def test_passes_look_after_every_block():
    limit = Limit()
    watched = limit.watch(lh.open_data(np.zeros(5000, int)))
    model, params = lh.HMM(1, lh.Poisson()), {"transition": [[1.0]], "rate": [1.0]}
    assert np.isfinite(lh.log_likelihood(model, params, watched))
    limit._abandoned.set()
    with pytest.raises(Abandoned):
        lh.log_likelihood(model, params, watched)


# One second at each phase -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts():
    return lh.simulate(lh.HMM(2, lh.Poisson()), PARAMS, length=20_000, seed=1)[1]


def fit(counts, **options):
    few = {"chains": 2, "draws": 20, "seed": 3, "progress": False}
    return lh.sample(lh.HMM(2, lh.Poisson()), counts, **{**few, **options})


def by(sampler, counts):
    """Data and options of a fit by the default sampler, or by NUTS on so few rows that a second is long."""
    return (counts, {}) if sampler == "default" else (counts[:500], {"sampler": NUTS, "init": PARAMS})


EITHER = pytest.mark.parametrize("sampler", ["default", "NUTS"])
NUTS = lh.NUTS(adaptation_steps=100)  # enough to move at all


@pytest.fixture(scope="module")
def warm(counts):
    """Everything compiled, so that a second is long."""
    return fit(counts), fit(counts[:500], sampler=NUTS, warmup=2, init=PARAMS)


def refused(counts, words, **options):
    began = time.monotonic()
    with pytest.raises(TimeIsOver, match=words):
        fit(counts, time_limit=1.0, **options)
    assert time.monotonic() - began < SOON


def test_in_the_search_for_the_mode(counts, stuck, monkeypatch):
    monkeypatch.setattr(tuning, "find_mode", stuck)
    refused(counts, "1 seconds were over while finding the mode")


@EITHER
def test_in_the_curvature(counts, stuck, monkeypatch, warm, sampler):
    monkeypatch.setattr(mode, "information_by_differences", stuck)
    monkeypatch.setattr(full_data_hmc, "curvature", stuck)
    data, how = by(sampler, counts)
    refused(data, "while (finding the mode|adapting the sampler)", **how)


def test_in_the_measurement_of_noise(counts, stuck, monkeypatch, warm):
    monkeypatch.setattr(tuning, "window_spread", stuck)
    refused(counts, "while finding the mode")


def test_while_getting_ready(counts, stuck, monkeypatch):
    monkeypatch.setattr(run, "_Session", stuck)
    refused(counts, "while getting ready", sampler=lh.SGLD(step_size=1e-5), init=PARAMS)


def test_in_the_adaptation_of_nuts(counts, stuck, monkeypatch, warm):
    monkeypatch.setattr(contract, "_block", stuck)
    refused(counts[:500], "while (adapting the sampler|getting ready)", sampler=NUTS, init=PARAMS)


def test_in_the_warm_up(counts, stuck, monkeypatch, warm):
    monkeypatch.setattr(driver.Driver, "_blocks_together", stuck)
    monkeypatch.setattr(driver, "GRACE", 0.0)
    refused(counts, "while (warming up|finding the mode)")


@EITHER
def test_in_the_chains_the_draws_so_far_come_back(counts, monkeypatch, sampler):
    """The clock jumps after the third block of draws."""
    clock, blocks = Clock(), []
    take = driver.Driver._take

    def counted(self, run, outcome, steps, record):
        take(self, run, outcome, steps, record)
        blocks.append(record)
        if sum(blocks) == 3:
            clock.now = 11.0

    monkeypatch.setattr(driver.Driver, "_take", counted)
    monkeypatch.setattr(sample, "Limit", lambda seconds: Limit(seconds, clock))
    monkeypatch.setattr(driver, "BLOCK_DRAWS", 3)
    data, how = by(sampler, counts)
    posterior = fit(data, time_limit=10.0, warmup=1, thin=1, **how)  # one step: nothing is recorded in the warm-up
    assert 3 <= posterior.n_draws <= 9
    assert any(note.startswith("stopped early by the time limit") for note in posterior.notes)


@EITHER
def test_in_the_checks_a_verdict_says_what_was_left_out(counts, stuck, monkeypatch, capsys, warm, sampler):
    clock = Clock()

    def slow(*given, **options):
        clock.now = 100.0
        return stuck()

    monkeypatch.setattr(sample, "Limit", lambda seconds: Limit(seconds, clock))
    monkeypatch.setattr(verdict, "bias", slow)
    monkeypatch.setattr(verdict, "LEAST_ESS", 1.0)
    monkeypatch.setattr(verdict, "MOST_R_HAT", 2.0)
    data, how = by(sampler, counts)
    posterior = fit(data, time_limit=50.0, progress=True, **how)
    assert posterior.verdict.kind == "chains agree, rest unchecked" and posterior.n_draws == 20
    assert any(note.startswith("the time limit left no time to check") for note in posterior.notes)
    printed = capsys.readouterr().out
    assert "Note: the time limit left no time" in printed and "rest unchecked" in printed


# Ctrl-C ---------------------------------------------------------------------------------------------------------------


def interrupting(stuck):
    """Press Ctrl-C, and be busy with something that cannot be interrupted."""

    def work(*given, **options):
        signal.raise_signal(signal.SIGINT)
        return stuck()

    return work


@pytest.mark.parametrize(
    "phase",
    [
        (tuning, "find_mode"),
        (mode, "information_by_differences"),
        (run, "_Session"),
        (driver.Driver, "_blocks_together"),
    ],
)
def test_ctrl_c_once_before_the_first_draw(counts, stuck, monkeypatch, phase):
    monkeypatch.setattr(*phase, interrupting(stuck))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fit(counts)
    assert time.monotonic() - began < 3 * SOON


@pytest.mark.parametrize("phase", [(full_data_hmc, "curvature"), (contract, "_block")])
def test_ctrl_c_once_in_the_adaptation(counts, stuck, monkeypatch, phase):
    monkeypatch.setattr(*phase, interrupting(stuck))
    with pytest.raises(KeyboardInterrupt):
        fit(counts[:500], sampler=lh.NUTS(), init=PARAMS)


@EITHER
def test_ctrl_c_once_in_the_chains_returns_the_draws_so_far(counts, monkeypatch, warm, sampler):
    take, recorded = driver.Driver._take, []

    def pressed(self, run, outcome, steps, record):
        take(self, run, outcome, steps, record)
        recorded.append(record)
        if sum(recorded) == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(driver.Driver, "_take", pressed)
    monkeypatch.setattr(driver, "BLOCK_DRAWS", 3)
    data, how = by(sampler, counts)
    posterior = fit(data, warmup=1, thin=1, **how)
    assert 3 <= posterior.n_draws <= 9
    assert any(note.startswith("stopped early by Ctrl-C") for note in posterior.notes)


def test_ctrl_c_once_in_the_checks_returns_the_draws(counts, stuck, monkeypatch, capsys):
    monkeypatch.setattr(bias, "bias", interrupting(stuck))
    posterior = fit(counts, progress=True)
    assert posterior.n_draws == 20
    assert any("Ctrl-C left no time to check" in note for note in posterior.notes)
    assert "Verdict: " in capsys.readouterr().out
