"""Chains that cannot return, with evidence against them: what underflows may be the only way on.

Every answer is compared with plain recursions on logarithms, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import longhmm as lh
from longhmm.backends import evaluate, reference

NEARLY = (0.0, 1e-300, 1e-30, 1e-12)


def chain(kind: str, k: int, least: float, rng: np.random.Generator) -> np.ndarray:
    rows = {
        "identity": np.eye(k),
        "cyclic": np.roll(np.eye(k), 1, axis=1),
        "left-to-right": np.triu(rng.dirichlet(np.ones(k), size=k)),
        "absorbing": np.vstack([rng.dirichlet(np.ones(k), size=k - 1), np.eye(k)[-1]]),
    }[kind]
    return (rows + least) / (rows + least).sum(axis=1, keepdims=True)


def truth(initial: np.ndarray, transition: np.ndarray, logs: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log likelihood, filtered and smoothed probabilities."""
    with np.errstate(divide="ignore"):
        steps, forward, backward = np.log(transition), [np.log(initial) + logs[0]], [np.zeros(len(initial))]
        for row in logs[1:]:
            forward.append(logsumexp(forward[-1][:, None] + steps, axis=0) + row)
        for row in logs[:0:-1]:
            backward.append(logsumexp(steps + row + backward[-1], axis=1))
        both = np.array(forward) + np.array(backward[::-1])
        filtered, smoothed = (
            np.exp(each - logsumexp(each, axis=1, keepdims=True)) for each in (np.array(forward), both)
        )
    return float(logsumexp(forward[-1])), filtered, smoothed


@pytest.mark.parametrize("alone", [False, True], ids=["fastest", "reference"])
@pytest.mark.parametrize("least", NEARLY)
@pytest.mark.parametrize("kind", ["identity", "cyclic", "left-to-right", "absorbing"])
def test_answers_against_recursions_on_logarithms(kind: str, least: float, alone: bool, monkeypatch: Any) -> None:
    if alone:
        monkeypatch.setattr(evaluate, "BACKENDS", (reference,))
    rng = np.random.default_rng([NEARLY.index(least), len(kind)])
    for k, sizes in ((2, (100, 200)), (3, (40, 150, 90, 60))):
        transition, initial = chain(kind, k, least, rng), rng.dirichlet(np.ones(k))
        means = 6.0 * np.arange(k)
        values = np.repeat(means[rng.permutation(len(sizes)) % k], sizes) + 0.3 * rng.normal(size=sum(sizes))
        model = lh.HMM(k, lh.Gaussian(), transition_prior=(transition > 0).astype(float))
        params = {"transition": transition, "initial": initial, "mean": means, "sd": np.ones(k)}
        total, filtered, smoothed = truth(initial, transition, stats.norm.logpdf(values[:, None], means))
        np.testing.assert_allclose(lh.log_likelihood(model, params, values), total, rtol=1e-11)
        np.testing.assert_allclose(lh.state_probabilities(model, params, values, causal=True), filtered, atol=1e-6)
        np.testing.assert_allclose(lh.state_probabilities(model, params, values), smoothed, atol=1e-6)


def test_a_state_that_cannot_be_left_again() -> None:
    values = np.array([6.0] * 100 + [0.0] * 200)
    model = lh.HMM(2, lh.Gaussian(), transition_prior=[[1.0, 1.0], [0.0, 1.0]])
    params = {"transition": [[0.99, 0.01], [0.0, 1.0]], "initial": [0.5, 0.5], "mean": [0.0, 6.0], "sd": [1.0, 1.0]}
    assert lh.log_likelihood(model, params, values) == pytest.approx(-2079.3797575620156, rel=1e-12)
    np.testing.assert_allclose(lh.state_probabilities(model, params, values, causal=True)[-1], [1.0, 0.0], atol=1e-6)
