"""What went wrong quietly is told once, in a sentence."""

import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm.run.chains import crowded, impossible
from longhmm.target.control_variate import ControlVariateTarget
from samplers.targets import coordinates_of, tuned_by_hand

STUCK = np.array([[1.0, 0.0], [1.0, 1.0]])  # state 0 is never left
PARAMS = {"transition": [[1.0, 0.0], [0.3, 0.7]]}


@pytest.fixture(scope="module")
def contradiction():
    """Known states that the model forbids, at one place out of sixty cells."""
    states = np.full(300, -1)
    states[150:152] = 0, 1
    model = lh.HMM(2, lh.Poisson(rate=[1.0, 4.0]), transition_prior=STUCK)
    return model, lh.open_data(np.ones(300, int), states=states)


def samplers():
    windows, buffer = lh.Windows(2, 60), lh.FixedBuffer(0)
    for sampler in (lh.SGRLD(0.05), lh.SGRLD.paper(1e-4, 2), lh.SGLD(1e-4), lh.SGHMC(0.1)):
        yield pytest.param(sampler, sampler.estimator(windows, buffer), id=sampler.name)
    yield pytest.param(lh.ControlVariateSGLD(), lh.Buffered(windows, buffer), id="matched")


@pytest.mark.parametrize(("sampler", "policy"), list(samplers()))
def test_windows_without_a_possible_path_are_counted(sampler, policy, contradiction):
    """All sixty cells in every minibatch: exactly the one that holds the contradiction is impossible."""
    model, data = contradiction
    bound = policy.bind(model, data, PARAMS)
    if isinstance(sampler, lh.ControlVariateSGLD):
        start = coordinates_of(model, PARAMS)
        bound = ControlVariateTarget(bound, start, jax.tree.map(np.zeros_like, start))
        sampler = tuned_by_hand(start, 1.0)
    state = sampler.init(bound, jax.random.key(0), coordinates_of(model, PARAMS))
    _, info = sampler.step(bound, jax.random.key(1), state, bound.minibatch(jax.random.key(2)))
    assert int(info.impossible) == 1


def test_impossible_windows_are_reported_and_the_verdict_says_biased(contradiction):
    model, data = contradiction
    posterior = lh.sample(
        model, data, sampler=lh.SGRLD(0.05), windows=lh.Windows(2, 60), buffer=lh.FixedBuffer(0), chains=2, draws=500,
        warmup=5, init=PARAMS, progress=False,
    )  # fmt: skip
    told = [note for note in posterior.notes if "no state can produce" in note]
    assert len(told) == 1 and "1,000 of 60,000 windows" in told[0]


def test_crowded_windows_are_told_once(contradiction):
    model, data = contradiction
    bound = lh.Buffered(lh.Windows(2, 30), lh.FixedBuffer(5)).bind(model, data, PARAMS)
    assert bound.source.scheme.shrunk
    assert (
        len(crowded(bound.source)) == 1 and "30 windows of 15 rows do not fit into 300 rows" in crowded(bound.source)[0]
    )
    roomy = lh.Buffered(lh.Windows(2, 4), lh.FixedBuffer(5)).bind(model, data, PARAMS)
    assert crowded(roomy.source) == []
    assert impossible(roomy.source, {"impossible": np.zeros((2, 5), int)}) == []
