"""Trees as JSON and arrays, and back: equal after the round trip, and nothing unknown is ever called."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.run.checkpoint import from_plain, to_plain
from longhmm.samplers.preconditioning import InverseInformation
from samplers.targets import tuned_by_hand


def there_and_back(value, **options):
    arrays = {}
    return from_plain(json.loads(json.dumps(to_plain(value, arrays, **options))), arrays, **options), arrays


@pytest.mark.parametrize(
    "policy",
    [
        lh.samplers.SGRLD.paper(lh.samplers.PolynomialDecay(1e-5)),
        lh.samplers.SGRLD(0.1, transitions=lh.samplers.CoxIngersollRoss()),
        lh.samplers.SGLD(1e-4, InverseInformation()),
        lh.samplers.NUTS(inverse_mass=np.eye(2)),
        lh.Windows(3, 7),
        lh.LyapunovBuffer(1e-4),
        None,
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_policies_are_rebuilt_from_plain_values(policy):
    assert from_plain(json.loads(json.dumps(to_plain(policy)))) == policy


def test_a_tuned_sampler_is_the_same_again():
    sampler = tuned_by_hand({"rate": np.array([0.1, 0.2]), "transition": np.array([1.0, 1 / 3])}, 0.3)
    again, arrays = there_and_back({"tuned": sampler})
    found, kept = again["tuned"].found, sampler.found
    assert found.windows == kept.windows and found.step_size == kept.step_size and np.isnan(found.competing)
    assert arrays["tuned/tuned/mode/transition"].dtype == np.float64
    np.testing.assert_array_equal(found.mode["transition"], kept.mode["transition"])
    np.testing.assert_array_equal(found.factor, kept.factor)
    np.testing.assert_array_equal(found.counts.counts, kept.counts.counts)


def test_arrays_of_every_kind_come_back_bit_for_bit():
    value = {"a": [np.float32(1 / 3), jnp.arange(3), np.array(True)], "b": {"c": 1e-300, "d": "text", "e": None}}
    found, arrays = there_and_back(value)
    assert found["b"] == value["b"] and set(arrays) == {"a/0", "a/1", "a/2"}
    for one, other in zip(found["a"], value["a"], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_what_is_not_known_is_refused():
    for plain in (
        {"class": "Popen", "with": {}},
        {"class": "Windows", "with": {"nonsense": 1}},
        {"class": ["Windows"], "with": {}},
        {"function": "system"},
        {"array": "missing"},
        {},
    ):
        with pytest.raises(ModelError, match="known name"):
            from_plain(plain, {})
    for value in (object(), {1: 2}, np.arange(3)):
        with pytest.raises(ModelError, match="longhmm's own"):
            to_plain(value)
