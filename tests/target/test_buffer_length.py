"""The buffer rule: errors fall at the rates it measures, and the length it chooses keeps its promise."""

from __future__ import annotations

import warnings
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.data.layout import Partition, ladder
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.target.buffer_length import LyapunovBuffer, contractions
from longhmm.target.buffer_report import Blocks
from longhmm.target.buffered import stationary_start
from target.references import AWAY, OVERLAPPING, normal_model, overlapping_data

# Rates --------------------------------------------------------------------------------------------------------------

BUFFERS = (4, 8, 12, 16)


@cache
def errors() -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """For every buffer: errors of the scores `(cells, P)` in units of their spread, and of the message at the core."""
    cells = Partition(overlapping_data().offsets, 5)
    picked = np.arange(0, cells.n_blocks, 2)
    complete = OVERLAPPING.validate(AWAY)

    def look(buffer: int) -> tuple[np.ndarray, np.ndarray]:
        return Blocks(OVERLAPPING, complete, overlapping_data(), cells, picked).scores(buffer, stationary_start, 133)

    exact, laws = look(64)
    found = {buffer: look(buffer) for buffer in BUFFERS}
    return {
        buffer: ((scores - exact) / exact.std(axis=0), np.abs(entering - laws).sum(axis=1))
        for buffer, (scores, entering) in found.items()
    }


@cache
def stretch_sums() -> dict[int, np.ndarray]:
    """Sums of log contractions over all stretches of each length."""
    series = contractions(OVERLAPPING, AWAY, overlapping_data(), 2048)
    return {B: np.concatenate([np.convolve(each, np.ones(B), "valid") for each in series]) for B in BUFFERS}


def slope(values: list[float]) -> float:
    return float(np.polyfit(BUFFERS, values, 1)[0])


def log_mean(values: np.ndarray) -> float:
    return float(np.mean(np.log(np.maximum(values, 1e-300))))


def gap() -> float:
    return float(np.mean(stretch_sums()[4]) / 4)


def moment_exponent() -> float:
    return slope([float(np.log(np.mean(np.exp(stretch_sums()[B])))) for B in BUFFERS])


def test_the_two_rates_differ_visibly_here() -> None:
    assert gap() < -1.1
    assert -0.85 < moment_exponent() < -0.65


def test_the_typical_message_error_falls_at_the_lyapunov_rate() -> None:
    inside = [errors()[B][1][20:-20] for B in BUFFERS]  # away from the ends, where windows are exact
    assert slope([log_mean(each) for each in inside]) == pytest.approx(gap(), rel=0.05)


def test_the_typical_score_error_is_that_of_the_worse_side() -> None:
    """A score hears errors from both sides; the larger one falls at the gap only in the limit, slower before."""
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, len(stretch_sums()[16]), 20_000) for _ in range(2))
    expected = slope([float(np.mean(np.logaddexp(stretch_sums()[B][left], stretch_sums()[B][right]))) for B in BUFFERS])
    found = slope([log_mean(np.linalg.norm(errors()[B][0][20:-20], axis=1)) for B in BUFFERS])
    assert found == pytest.approx(expected, rel=0.05)
    assert found == pytest.approx(gap(), rel=0.12)


def test_mean_errors_fall_at_the_moment_exponent() -> None:
    size = slope([float(np.log(np.linalg.norm(errors()[B][0], axis=1).mean())) for B in BUFFERS])
    bias = slope([float(np.log(np.linalg.norm(errors()[B][0].mean(axis=0)))) for B in BUFFERS])
    assert size == pytest.approx(moment_exponent(), rel=0.1)
    assert bias == pytest.approx(moment_exponent(), rel=0.2)
    assert bias > 0.8 * gap()  # clearly slower than the typical error


# The rule -----------------------------------------------------------------------------------------------------------


def test_the_chosen_length_keeps_its_promise_and_the_mean_rate_does_not() -> None:
    rule = LyapunovBuffer(tolerance=1e-3)
    series = contractions(OVERLAPPING, AWAY, overlapping_data())
    chosen = rule.estimate(OVERLAPPING, AWAY, overlapping_data())
    naive = LyapunovBuffer(tolerance=1e-3, quantile=None).estimate(OVERLAPPING, AWAY, overlapping_data())
    assert chosen.needed == rule.shortest(series)
    assert chosen.gap == naive.gap == pytest.approx(gap(), rel=0.05)
    assert naive.needed == np.ceil(np.log(1e-3 / 2) / naive.gap)
    table = lh.buffer_report(
        OVERLAPPING, AWAY, overlapping_data(), buffers=[naive.needed, chosen.needed], rule=rule, blocks=8000
    )
    share = {row.buffer: row.share for row in table.rows}
    assert share[chosen.needed] > 0.94
    assert share[naive.needed] < 0.8


@pytest.mark.parametrize("pieces", [5, 20])
def test_the_answer_does_not_depend_on_how_the_data_were_cut(pieces: int) -> None:
    whole = LyapunovBuffer().estimate(OVERLAPPING, AWAY, overlapping_data())
    y = overlapping_data().rows(0, 100_000).values
    cut = LyapunovBuffer().estimate(OVERLAPPING, AWAY, open_data(y, lengths=[100_000 // pieces] * pieces))
    assert cut.gap == pytest.approx(whole.gap, rel=0.05)
    assert whole.length in (cut.length, ladder(cut.length + 1)) or cut.length == ladder(whole.length + 1)


BLIND = {"transition": np.array([[0.995, 0.005], [0.01, 0.99]]), "loc": np.zeros(2)}


def test_uninformative_emissions_need_what_the_second_eigenvalue_says() -> None:
    """Runs are lengthened until they are much longer than the answer: ln(delta / 2) / ln(0.985) = 503 steps."""
    found = LyapunovBuffer(tolerance=1e-3).estimate(OVERLAPPING, BLIND, overlapping_data())
    assert found.gap == pytest.approx(np.log(0.985), rel=1e-3)
    assert abs(found.needed - np.log(1e-3 / 2) / np.log(0.985)) <= 1.01
    assert found.length == 512
    assert not found.capped


def test_a_cap_is_used_with_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="more than 64 would be needed"):
        found = LyapunovBuffer(longest=64).estimate(OVERLAPPING, BLIND, overlapping_data())
    assert found.length == 64
    assert found.capped


def test_sequences_shorter_than_the_buffer_need_no_warning() -> None:
    """A buffer as long as the longest sequence is exact."""
    y = overlapping_data().rows(0, 2000).values
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = LyapunovBuffer(longest=64).estimate(OVERLAPPING, BLIND, open_data(y, lengths=[50] * 40))
    assert 50 <= found.length <= 64
    assert not found.capped


def test_one_state_needs_no_buffer_and_two_need_at_least_one() -> None:
    one = LyapunovBuffer().estimate(normal_model(1), {"transition": [[1.0]], "loc": [0.0]}, overlapping_data())
    assert one.length == one.needed == 0
    separated = {"transition": BLIND["transition"], "loc": np.array([-30.0, 30.0])}
    y = np.repeat([-30.0, 30.0], 500) + np.random.default_rng(0).normal(size=1000)
    found = LyapunovBuffer().estimate(OVERLAPPING, separated, open_data(np.tile(y, 100)))
    assert found.length == 1  # every observation tells its state


# The search ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.05, 0.5, 7.0, 15.0])
def test_shortest_on_a_constant_contraction(rate: float) -> None:
    series = [np.full(3000, -rate)]
    expected = int(np.ceil(np.log(2 / 1e-3) / rate - 1e-9))
    assert LyapunovBuffer(1e-3).shortest(series) == LyapunovBuffer(1e-3, None).shortest(series) == expected


def test_shortest_is_the_smallest_by_brute_force_and_grows_with_the_demands() -> None:
    rng = np.random.default_rng(0)
    series = [rng.normal(-0.6, 1.0, 400), rng.normal(-0.6, 1.0, 300), rng.normal(size=3)]
    found = []
    for tolerance in (0.5, 1e-1, 1e-3, 1e-6):
        lengths = (
            B
            for B in range(1, 300)
            if np.quantile(np.concatenate([np.convolve(s, np.ones(B), "valid") for s in series if len(s) >= B]), 0.95)
            <= np.log(tolerance / 2)
        )
        found.append(LyapunovBuffer(tolerance).shortest(series))
        assert found[-1] == next(lengths)
    assert found == sorted(found)
    assert len(set(found)) == 4
    shares = [LyapunovBuffer(1e-3, share).shortest(series) for share in (0.5, 0.9, 0.99)]
    assert shares == sorted(shares)
    assert LyapunovBuffer(1e-3, longest=8).shortest(series) == 9  # "too long"
    assert LyapunovBuffer(1e-3, None).shortest([np.full(9, 0.1)]) == 4097  # never contracts


def test_the_ladder() -> None:
    assert [ladder(n) for n in (1, 2, 3, 4, 5, 6, 7, 9, 13, 17, 25, 100)] == [
        1,
        2,
        3,
        4,
        6,
        6,
        8,
        12,
        16,
        24,
        32,
        128,
    ]
    assert all(n <= ladder(n) <= 1.5 * n for n in range(1, 5000))
    assert [ladder(n) for n in (1 << 14, (1 << 14) + 1, 200_000)] == [1 << 14, 17 << 10, 25 << 13]
    assert all(n <= ladder(n) <= 17 * n / 16 for n in range(1 << 14, 1 << 20, 999))


@pytest.mark.parametrize(
    "wrong", [{"tolerance": 0.0}, {"tolerance": 2.0}, {"quantile": 1.0}, {"repeats": 0}, {"longest": 0}]
)
def test_nonsense_is_refused(wrong: dict) -> None:
    with pytest.raises(ModelError, match=next(iter(wrong))):
        LyapunovBuffer(**wrong)


def test_repeats_are_whole_lengths_in_a_row() -> None:
    once = LyapunovBuffer().estimate(OVERLAPPING, AWAY, overlapping_data())
    twice = LyapunovBuffer(repeats=2).estimate(OVERLAPPING, AWAY, overlapping_data())
    assert twice.needed == 2 * once.needed > 0 and twice.gap == once.gap
    short = LyapunovBuffer(repeats=2, longest=once.needed).estimate(OVERLAPPING, AWAY, overlapping_data())
    assert short.length == once.needed and not short.capped, "one length is all that was promised"


def test_fixed_lengths() -> None:
    assert lh.FixedBuffer(7).estimate(OVERLAPPING, AWAY, overlapping_data()).length == 7
    for wrong in (-1, 2.0, True):
        with pytest.raises(ModelError, match="length must be"):
            lh.FixedBuffer(wrong)


def test_emissions_that_see_the_state_before_forget_alike():
    """One that takes no notice of it contracts as the plain one does."""

    class Pairs(lh.Emission):
        couples = True

        def __init__(self):
            super().__init__(None, loc=dist.Normal(0, 5))

        def log_likelihoods(self, params, rows):
            logs = dist.Normal(params["loc"], 1.0).log_prob(rows.values)[..., None, :]
            return jnp.broadcast_to(logs, (*rows.values.shape[:-1], 2, 2))

    plain = lh.HMM(2, lh.Emission(dist.Normal, loc=dist.Normal(0, 5), scale=1.0))
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "loc": [0.0, 1.5]}
    y = open_data(lh.simulate(plain, params, 3000, seed=1)[1])
    expected = contractions(plain, params, y)
    for found, each in zip(contractions(lh.HMM(2, Pairs()), params, y), expected, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-9, atol=1e-9)
