"""Few programs are compiled, other data of the same shape need none, and another process finds them on disk, where the
user says, while the user's own settings stay."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

import longhmm as lh
from longhmm.run.compilation import SETTINGS, SWITCH, cached_compilation

FINISHED = re.compile(r"Finished XLA compilation of jit\((.+?)\) in")
MOST = 20  # programs of a first fit with its verdict


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
    monkeypatch.setitem(SETTINGS, "jax_persistent_cache_min_compile_time_secs", 0.0)
    before = jax.config.jax_compilation_cache_dir
    with cached_compilation():
        compile_something(17)
    kept = sorted(tmp_path.rglob("*-cache"))
    assert kept and all(file.parent == tmp_path / "kept" / lh.__version__ for file in kept)
    assert jax.config.jax_compilation_cache_dir == before
    compile_something(19)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "kept", tmp_path / "kept" / lh.__version__, *kept]


def test_it_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    with cached_compilation():
        assert jax.config.jax_compilation_cache_dir is None


def series(n_states, length, seed):
    """States that stay for 20 rows, 2 apart."""
    rng = np.random.default_rng(seed)
    moves = rng.random(length) < 0.05
    states = np.cumsum(np.where(moves, rng.integers(1, max(n_states, 2), length), 0)) % n_states
    return states, rng


def compiled(caplog, work):
    """What some work returns, and the names of the programs that it compiles, in all threads."""
    caplog.clear()
    jax.config.update("jax_log_compiles", True)
    try:
        found = work()
    finally:
        jax.config.update("jax_log_compiles", False)
    return found, [name for record in caplog.records for name in FINISHED.findall(record.getMessage())]


def first_and_second(caplog, model, make):
    """Names of the programs that a fit with its verdict compiles, and that another one of the same shape does."""
    jax.clear_caches()  # other tests may have compiled the same
    fits = [compiled(caplog, partial(lh.sample, model, make(seed), seed=seed)) for seed in (0, 1)]
    assert all(posterior.verdict.kind == "trust" for posterior, _ in fits)
    return [names for _, names in fits]


PLANE = partial(lh.Gaussian, 2)
SLOWLY = (lh.Categorical, lh.Gamma, PLANE, lh.StudentT, lh.NegativeBinomial)


def made(family, seed):
    states, rng = series(2, 10_000, seed)
    if family is PLANE:
        return np.array([[-1.0, 0.0], [1.0, 1.0]])[states] + 0.5 * rng.normal(size=(len(states), 2))
    if family is lh.Gaussian:
        return np.array([-1.0, 1.0])[states] + 0.5 * rng.normal(size=len(states))
    if family is lh.StudentT:
        return np.array([-2.0, 2.0])[states] + 0.5 * rng.standard_t(5, size=len(states))
    if family is lh.NegativeBinomial:
        return rng.negative_binomial(np.array([4, 20])[states], 0.6)
    if family is lh.Gamma:
        return rng.gamma(np.array([2.0, 6.0])[states]) / np.array([2.0, 1.0])[states]
    if family is lh.Categorical:
        return (rng.random(len(states))[:, None] > np.array([[0.7, 0.85], [0.1, 0.2]])[states]).sum(axis=1)
    return rng.poisson(np.array([1.0, 8.0])[states])


slow = pytest.mark.slow


@pytest.mark.parametrize("family", [lh.Gaussian, lh.Poisson, *(pytest.param(each, marks=slow) for each in SLOWLY)])
def test_a_fit_compiles_few_programs_and_a_second_fit_none(caplog, family):
    emission = lh.Categorical(3) if family is lh.Categorical else family()
    first, second = first_and_second(caplog, lh.HMM(2, emission), partial(made, family))
    assert {"_run", "_finish", "_compiled_together"} <= set(first)
    assert len(first) <= MOST
    assert second == []


IN_ANOTHER_PROCESS = """
import jax, numpy as np, longhmm as lh
from longhmm.run.compilation import cached_compilation
found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event.rpartition("/")[2]))
with cached_compilation():
    y = np.random.default_rng(0).normal(size=200)
    model = lh.HMM(2, lh.Gaussian()).resolve(y)
    lh.gradient(model, {"transition": [[0.9, 0.1], [0.2, 0.8]], "mean": [0.0, 1.0], "sd": [1.0, 1.0]}, y)
print(found.count("cache_hits"), found.count("cache_misses"))
"""


def test_another_process_finds_every_program(tmp_path):
    """Whatever the order of sets, which Python chooses anew for each process."""
    seen = []
    for order in ("1", "2"):
        environment = {**os.environ, SWITCH: str(tmp_path), "PYTHONHASHSEED": order}
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seen.append([int(word) for word in done.stdout.split()])
    (_, compiled), (found, missed) = seen
    assert compiled > 2
    assert (found, missed) == (compiled, 0)


def test_a_fit_with_its_verdict_loads_no_library_that_only_others_need():
    program = "import sys, numpy as np, longhmm as lh\n"
    program += "y = np.repeat([0.0, 3.0] * 20, 10) + np.random.default_rng(0).normal(size=400)\n"
    program += "params = {'mean': np.array([0.0, 3.0]), 'sd': np.ones(2), 'transition': np.full((2, 2), 0.5)}\n"
    program += "model = lh.HMM(2, lh.Gaussian())\n"
    program += "lh.gradient(model, params, y)\n"
    program += "print(sorted({'pandas', 'xarray'} & set(sys.modules)))\n"
    program += "lh.sample(model, y, chains=2, draws=20, progress=False)\n"
    program += "print(sorted({'arviz', 'matplotlib', 'scipy.stats'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]


def test_the_adaptation_of_nuts_is_compiled_once(caplog):
    jax.clear_caches()
    how = dict(sampler=lh.NUTS(adaptation_steps=3, max_tree_depth=1), chains=1, draws=2, warmup=0, progress=False)
    y = np.random.default_rng(0).normal(size=40)
    _, names = compiled(caplog, partial(lh.sample, lh.HMM(1, lh.Gaussian()), y, **how))
    assert names.count("_block") == 1 and names.count("_compiled") == 1


def test_long_data_whose_states_stay_long_need_no_programs_of_their_own_but_one(caplog):
    """The part of a search, and all data in several blocks, whose ends must be looked at, too."""
    jax.clear_caches()
    y, model = np.tile(np.repeat([0, 1], 3000), 100), lh.HMM(2, lh.Categorical(2)).resolve(np.array([0, 1]))
    params = {"transition": [[0.9999, 0.0001], [0.0001, 0.9999]], "probs": [[0.51, 0.49], [0.49, 0.51]]}
    short, again = (compiled(caplog, partial(lh.gradient, model, params, y[:n]))[1] for n in (40_000, 600_000))
    assert {"_run", "_transfers", "propagate"} <= set(short)
    assert set(again) <= {"_run"} and len(again) <= 1
