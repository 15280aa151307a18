"""The written-out generator draws what JAX's own draws, bit for bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longhmm.run.generator import generator_key, key_from

DRAWS = {
    "split": lambda key: jax.random.key_data(jax.random.split(key, 3)),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**31 - 1)),
    "normal": lambda key: jax.random.normal(key, (5, 3)),
    "randint": lambda key: jax.random.randint(key, (7,), 0, 1000),
    "gamma": lambda key: jax.random.gamma(key, 2.5, (4,)),
    "bytes": lambda key: jax.random.bits(key, (9,), jnp.uint8),
    "many keys": lambda key: jax.vmap(lambda one: jax.random.uniform(one, (2,)))(jax.random.split(key, 4)),
}


# A gamma's operations, compiled one by one, take longer than everything else.
@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow][: each == "gamma"]) for each in DRAWS])
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("seed", [0, 7, -3, 2**40 + 5])
def test_draws_are_those_of_jax(name, x64, seed):
    # One operation at a time: compiled as one program, a gamma's last bit depends on what the barriers let be fused.
    with jax.enable_x64(x64), jax.disable_jit(name == "gamma"):
        expected, found = DRAWS[name](jax.random.key(seed)), DRAWS[name](generator_key(seed))
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_a_key_survives_being_taken_apart():
    key = jax.random.fold_in(generator_key(3), 8)
    again = key_from(np.asarray(jax.random.key_data(key)))
    np.testing.assert_array_equal(jax.random.bits(again, (4,)), jax.random.bits(key, (4,)))


def test_keys_are_made_before_what_is_made_of_them():
    """Fused, a key made of a key is computed again for every word of the next: JAX 0.11 did not end compiling NUTS."""
    text = jax.jit(lambda key: jax.random.normal(jax.random.split(jax.random.fold_in(key, 1))[0], (4,))).lower(
        generator_key(0)
    )
    assert text.as_text().count("optimization_barrier") >= 2
