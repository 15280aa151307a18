"""Compiled programs are kept where the user says, only while sampling, and the user's own settings stay."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from longhmm.run.compilation import SWITCH, cached_compilation


@pytest.fixture(autouse=True)
def without_a_cache() -> Iterator[None]:
    """As a user finds JAX; the tests themselves keep what they compile."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    reset_cache()
    yield
    jax.config.update("jax_compilation_cache_dir", before)
    reset_cache()


def compile_something(size):
    """A program slow enough to compile that it is worth keeping."""
    work = jax.jit(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c) @ jnp.cos(c).T, jnp.linalg.inv(c)), x, None, 3))
    jax.block_until_ready(work(jnp.eye(size)))


def test_programs_are_kept_only_inside(tmp_path, monkeypatch):
    monkeypatch.setenv(SWITCH, str(tmp_path / "kept"))
    monkeypatch.setattr("longhmm.run.compilation.SHORTEST", 0.0)
    before = jax.config.jax_compilation_cache_dir
    with cached_compilation():
        compile_something(17)
    kept = sorted(file.name for file in (tmp_path / "kept").iterdir())
    assert kept
    assert jax.config.jax_compilation_cache_dir == before
    compile_something(19)
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == kept


def test_it_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    with cached_compilation():
        assert jax.config.jax_compilation_cache_dir is None
