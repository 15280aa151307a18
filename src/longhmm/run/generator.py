"""Random numbers for compiled loops: JAX's Threefry-2x32 bit for bit (Salmon, Moraes, Dror and Shaw, SC 2011), rounds
written out, as a loop costs more than a step; keys behind barriers, or XLA repeats each in every word made of it."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def generator_key(seed: int) -> jax.Array:
    """The key of a seed: draws the numbers that `jax.random.key(seed)` draws."""
    return key_from(seed_words(seed))


def seed_words(seed: int) -> np.ndarray:
    """The two words `(2,)` of the key of a seed, made on the host: every operation would be a program of its own."""
    high = seed >> 32 if jax.config.read("jax_enable_x64") else 0
    return np.array([high % 2**32, seed % 2**32], np.uint32)


def folded(words: np.ndarray, number: Any) -> np.ndarray:
    """The words of `jax.random.fold_in(key, number)`, `(2,)`; of many numbers `(n, 2)`."""
    found = _threefry(words[:, None], np.zeros(1, np.uint32), np.atleast_1d(number).astype(np.uint32))
    return np.stack(found, axis=-1).reshape(*np.shape(number), 2)


def key_from(words: np.ndarray) -> jax.Array:
    return jax.random.wrap_key_data(jax.device_put(words), impl=UNROLLED)


def _threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """The two words of every counter, enciphered, in numpy or jax.numpy."""
    words = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    high, low = high + words[0], low + words[1]
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            high = high + low
            low = high ^ ((low << np.uint32(turn)) | (low >> np.uint32(32 - turn)))
        high = high + words[(group + 1) % 3]
        low = low + words[(group + 2) % 3] + np.uint32(group + 1)
    return high, low


def _counters(shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    size = math.prod(shape)
    if size >= 2**32:
        raise NotImplementedError("more than 2^32 random numbers in one call")
    low = jnp.arange(size, dtype=jnp.uint32).reshape(shape)
    return jnp.zeros_like(low), low


def _seed(seed: jax.Array) -> jax.Array:
    high = (seed >> 32).astype(jnp.uint32) if seed.dtype.itemsize > 4 else jnp.zeros((), jnp.uint32)
    return jnp.stack([high, seed.astype(jnp.uint32)])


@partial(jax.jit, static_argnums=1)
def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.lax.optimization_barrier(jnp.stack(_threefry(key, *_counters(shape)), axis=-1))


@partial(jax.jit, static_argnums=(1, 2))
def _random_bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    high, low = _threefry(key, *_counters(shape))
    if width == 64:
        return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    return (high ^ low).astype(f"uint{width}")


@jax.jit
def _fold_in(key: jax.Array, data: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(jnp.stack(_threefry(key, jnp.zeros((), jnp.uint32), data.astype(jnp.uint32))))


UNROLLED = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32_unrolled",
    tag="unr",
)
