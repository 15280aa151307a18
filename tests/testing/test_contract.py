"""The contract test passes for a sound sampler, and each part of it can fail."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import longhmm as lh
from longhmm.samplers.contract import Info, Sampler, all_finite
from longhmm.testing import check_sampler


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
