"""Scores of held-out blocks: the step against refits, scores against the likelihood, silence on right models."""

from types import SimpleNamespace

import numpy as np
import pytest

import longhmm as lh
from longhmm.backends.stream import totals
from longhmm.posterior.diagnostics.bias import FALSE_ALARMS, scored
from longhmm.posterior.diagnostics.held_out import (
    MOST_SIZE,
    Scored,
    blocks,
    compared,
    held_out,
    judge_held_out,
    row_scores,
    without,
)
from longhmm.samplers.mode import find_mode
from longhmm.target.coordinates import Flat, constrain, unconstrain

PARAMS = {"transition": [[0.9, 0.1], [0.2, 0.8]], "mean": [0.0, 3.0], "sd": [1.0, 1.0]}
TRUTH = {name: np.array(value) for name, value in PARAMS.items()}


def drawn(length, seed=0, model=None):
    return np.asarray(lh.simulate(model or lh.HMM(2, lh.Gaussian()), PARAMS, length, seed=seed)[1], np.float64)


def at_the_mode(y, init=TRUTH, blocks=400):
    """The scores there, and the mode with its curvature."""
    model, sequences = lh.HMM(2, lh.Gaussian()).meet(y)
    model = model.resolve(sequences)
    mode = find_mode(model, sequences, init=init)
    return Scored(*scored(model, constrain(model, mode.coordinates), sequences, blocks)), mode


def as_posterior(mode, seed=0):
    flat = Flat.like(mode.coordinates)
    draws = np.random.default_rng(seed).multivariate_normal(
        flat.ravel_numpy(mode.coordinates), np.linalg.inv(mode.information), size=(4, 500)
    )
    return SimpleNamespace(coordinates=flat.unravel(draws))


def test_one_step_goes_where_a_refit_without_the_block_goes():
    """An odd tenth moves the mode by more than a posterior sd. One step finds that to a tenth: what is left is of
    second order, and that the curvature of the rest is taken to be its share of the whole."""
    y = drawn(8000)
    y[2400:3200] += 0.5
    found, mode = at_the_mode(y)
    covariance, moved, refit = np.linalg.inv(mode.information), [], []
    flat, sd = Flat.like(mode.coordinates), np.sqrt(np.diag(np.linalg.inv(mode.information)))
    lies = found.some.cut.locate(found.some.numbers, 0)
    for _, mine in list(blocks(found))[2:5]:
        gap = y.copy()
        gap[int(lies.begin[mine[0]]) : int(lies.begin[mine[-1]] + lies.core[mine[-1]])] = np.nan
        left = find_mode(found.some.model, lh.open_data(gap), near=(mode.coordinates, mode.information))
        step = unconstrain(found.some.model, without(found, covariance, mine))
        for ends, into in ((step, moved), (left.coordinates, refit)):
            into.append((flat.ravel_numpy(ends) - flat.ravel_numpy(mode.coordinates)) / sd)
    assert np.abs(refit).max() > 1.0
    np.testing.assert_allclose(moved, refit, atol=0.1 * np.abs(refit).max())


@pytest.mark.parametrize("emission", [lh.Gaussian(), lh.Gaussian(response=lh.StepResponse([0.5, 1]))])
def test_scores_of_rows_add_up_to_the_likelihood_and_simulated_ones_to_its_expectation(emission):
    y = drawn(20_000, model=lh.HMM(2, emission))
    model, part = lh.HMM(2, emission).meet(y)
    model = model.resolve(part)
    pair = row_scores(model, TRUTH, part, part.rows(0, part.length), np.arange(part.length), part.length)
    assert pair[0].sum() == pytest.approx(totals(model, model.validate(TRUTH), part).log_likelihood, abs=1e-6)
    difference = pair[0] - pair[1]
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference))
    assert pair[1].std() == pytest.approx(pair[0].std(), rel=0.05)


def test_missing_rows_have_no_score_and_no_weight():
    y = drawn(2000)
    y[100:150] = np.nan
    found, mode = at_the_mode(y)
    every = held_out(found, np.linalg.inv(mode.information))
    assert sum(each.rows for each in every) == 1950
    assert all(np.isfinite([each.score, each.expected, each.squares]).all() for each in every)


def test_blocks_are_tenths_or_sequences():
    one, _ = at_the_mode(drawn(6000))
    assert [name for name, _ in blocks(one)][:2] == ["rows 0 to 639", "rows 640 to 1,279"]
    y = drawn(6000)
    two, _ = at_the_mode([y[:4800], y[4800:5400], y[5400:]])
    names = [name for name, _ in blocks(two)]
    assert names[0] == "rows 0 to 639 of sequence 0" and names[-2:] == ["sequence 1", "sequence 2"] and len(names) == 10
    many, _ = at_the_mode(np.split(y, 40))
    assert len(list(blocks(many))) == 10
    for found in (one, two, many):  # every stretch has one block
        assert sorted(np.concatenate([mine for _, mine in blocks(found)])) == list(range(len(found.scores)))


def test_a_part_of_long_data_is_scored_with_rows_before_it():
    """With 50 stretches of 128 rows, each block's score is nearly that of the same rows in a pass over all data."""
    y = drawn(20_000)
    found, mode = at_the_mode(y, blocks=50)
    every = held_out(found, np.zeros_like(mode.information))
    assert sum(each.rows for each in every) == sum(found.some.cut.locate(found.some.numbers, 0).core)
    some, params = found.some, constrain(found.some.model, mode.coordinates)
    rows = some.sequences.rows(0, len(y))
    pair = row_scores(some.model, params, some.sequences, rows, np.arange(len(y)), len(y))
    lies = some.cut.locate(some.numbers, 0)
    own = np.concatenate([np.arange(begin, begin + core) for begin, core in zip(lies.begin, lies.core, strict=True)])
    assert sum(each.rows * each.score for each in every) == pytest.approx(pair[0][own].sum(), abs=1e-6)


@pytest.mark.slow
def test_right_models_are_seldom_called_wrong():
    """P-values of 60 data sets: at most as many small ones as uniform numbers have."""
    p_values = []
    for seed in range(60):
        found, mode = at_the_mode(drawn(1000, seed))
        p_values.append(compared(held_out(found, np.linalg.inv(mode.information), seed))[0])
    assert np.sum(np.array(p_values) < 0.1) <= 13  # 99.5 % of binomial numbers, 60 times 0.1
    assert np.sum(np.array(p_values) < FALSE_ALARMS) <= 1  # two have a chance of 0.2 %


@pytest.mark.parametrize("trouble", ["odd stretch", "change point", "calm"])
def test_blocks_that_are_different_are_named(trouble):
    y, details = drawn(10_000), {}
    if trouble == "odd stretch":
        y[5300:5500] += 4.0
    elif trouble == "change point":
        y[8960:] += 1.0
    else:
        y[5120:6016] = np.where(y[5120:6016] > 1.5, 3.0, 0.0) + 0.3 * (y[5120:6016] % 1.0 - 0.5)
    found, mode = at_the_mode(y)
    (said,) = judge_held_out(as_posterior(mode), *found, details)
    where = "rows 9,088 to 9,999" if trouble == "change point" else "rows 5,120 to 6,015"
    assert said.startswith(f"{where} are {'more' if trouble == 'calm' else 'less'} probable, given all others")
    assert details["held_out"] > MOST_SIZE and details["held_out_p_value"] < FALSE_ALARMS
    assert details["held_out_of"] == where and len(details["held_out_scores"]) == 10


def test_nothing_is_said_where_rows_cannot_be_simulated_or_blocks_compared():
    found, mode = at_the_mode(drawn(2000))
    emission = found.some.model.emission

    def refuses(*_):
        raise lh.errors.ModelError("no way to draw observations")

    details = {}
    assert judge_held_out(as_posterior(mode), *found, details) == [] and "held_out" in details
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(emission), "sample_after", refuses)
        import jax

        jax.clear_caches()
        assert held_out(found, np.linalg.inv(mode.information)) == []
    short, mode = at_the_mode(drawn(150))
    assert judge_held_out(as_posterior(mode), *short, details := {}) == [] and details == {}
