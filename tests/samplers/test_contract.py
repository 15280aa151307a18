"""Every registered sampler keeps the contract, and each part of the contract can fail."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.samplers import SAMPLERS
from longhmm.samplers.contract import Info, Sampler, all_finite
from longhmm.testing import check_sampler

# What these need beside their defaults: steps that suit a tiny model, and no long adaptation.
SETTINGS = {
    "SGLD": {"step_size": 1e-4},
    "NUTS": {"step_size": 0.3, "inverse_mass": 0.01 * np.eye(4), "max_tree_depth": 3},
    "HMC": {"step_size": 0.3, "inverse_mass": 0.01 * np.eye(4), "leapfrogs": 3},
}
BY_HAND = {"BatchRLD", "ExpectationMaximisation"}  # one pass over streamed data per step
WITHOUT_CHANCE = {"ExpectationMaximisation", "StochasticVariational"}  # given the minibatch
STEPPED = ("BatchRLD", "HMC", "SGHMC", "SGLD", "SGRLD")  # the user gives them a step size


REGISTERED = sorted(each for each, module in SAMPLERS.modules().items() if module.startswith("longhmm."))


def make(name):
    return SAMPLERS.find(name)(**SETTINGS.get(name, {}))


def test_all_ten_samplers_are_known():
    assert len(REGISTERED) == 10 and {"BatchRLD", "ControlVariateSGLD", "StochasticVariational"} <= set(REGISTERED)


@pytest.mark.parametrize("name", REGISTERED)
def test_the_contract_is_kept(name):
    assert make(name) == make(name) and hash(make(name)) == hash(make(name))
    check_sampler(make(name), chance=name not in WITHOUT_CHANCE)
    tiny = lh.open_data(np.arange(30) % 7)
    model = lh.HMM(2, lh.Poisson()).resolve(tiny)
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 5.0]}
    target = make(name).estimator(None, lh.FixedBuffer(2)).bind(model, tiny, params)
    assert target.compiled == (name not in BY_HAND | {"ControlVariateSGLD"})  # which is not tuned yet


@pytest.mark.parametrize("name", REGISTERED)
def test_docstring_has_equations_example_and_reference(name):
    text = SAMPLERS.find(name).__doc__
    assert "' = " in text or "' ~ " in text
    assert name not in STEPPED or "step_size" in text
    for part in ("Example:", "Reference", "iffer"):
        assert part in text, part


class State(NamedTuple):
    coordinates: dict


@dataclass(frozen=True)
class Walk(Sampler):
    """Langevin steps with a defect of choice."""

    defect: str = ""
    name: ClassVar[str] = "walk"

    def init(self, target, key, u):
        return State(dict(u))

    def step(self, target, key, state, minibatch):
        gradient = target.estimate(state.coordinates, minibatch).gradient
        if self.defect == "chance":
            key = jax.random.key(0)
        noise = jax.random.normal(key, (8,))
        after = {name: value + 1e-4 * gradient[name] + 1e-2 * noise[0] for name, value in state.coordinates.items()}
        if self.defect == "still":
            after = {**after, "rate": state.coordinates["rate"]}
        if self.defect == "type":
            after = {name: value.astype(jnp.float16) for name, value in after.items()}
        if self.defect == "gradient":
            gradient = {name: 2.0 * value for name, value in gradient.items()}
        return State(after), Info(gradient, jnp.asarray(True) if self.defect == "finite" else all_finite(after))

    def coordinates(self, recorded):
        found = super().coordinates(recorded)
        return {name: 2 * value for name, value in found.items()} if self.defect == "record" else found

    def tune(self, target, start):
        return lh.SGLD(1e-4) if self.defect == "tune" else self


def test_a_sound_sampler_passes():
    check_sampler(Walk())


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        ("chance", "teps with different keys differ"),
        ("still", "moves every coordinate"),
        ("type", "do not change"),
        ("gradient", "that of the state before"),
        ("finite", "Info.finite is False"),
        ("record", "those of the state"),
        ("tune", "of the same class"),
    ],
)
def test_each_part_can_fail(defect, words):
    with pytest.raises(AssertionError, match=words):
        check_sampler(Walk(defect))


def test_what_is_no_sampler_is_refused():
    @dataclass
    class Thawed(Sampler):
        name: ClassVar[str] = "thawed"

    for given, words in ((object(), "derived from Sampler"), (Thawed(), "frozen dataclass")):
        with pytest.raises(AssertionError, match=words):
            check_sampler(given)
