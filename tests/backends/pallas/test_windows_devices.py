"""Windows over four devices of one host: what one device finds. Devices must be there when JAX starts, hence a process
of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import longhmm as lh

COMMON = """
import jax, numpy as np
from jax.sharding import Mesh
import jax.numpy as jnp
import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.backends import native
from longhmm.backends.read import Reader
from longhmm.backends.pallas import full as gpu_pass, windows as pallas_windows

assert len(jax.devices()) == 4
native.usable = lambda: False  # as on a GPU; the kernel itself is interpreted
pallas_windows.usable = lambda: True
QUICK = {"xla_backend_optimization_level": 0}
model = lh.HMM(2, lh.Gaussian())
params = model.validate({
    "transition": [[0.8, 0.2], [0.3, 0.7]], "mean": [40.0, 42.0], "sd": np.sqrt([1.0, 2.0])
})
rng = np.random.default_rng(5)
y = (params["mean"][rng.integers(2, size=5_000)][:, None] + rng.normal(size=(5_000, 1))).astype(np.float32)
y[[3, 500]] = np.nan

def on(count, run):
    pallas_windows.mesh = lambda: Mesh(np.array(jax.devices()[:count]), (pallas_windows.AXIS,))
    jax.clear_caches()
    return run()
"""

FULL_PASS = """
gpu_pass.LEAST_CHUNK = 16
gpu_pass.BLOCK_ENTRIES = 32 * 80 * 2 * 2  # two programs of a block on each device: several blocks, with joints between
sequences = open_data([y[:3_000], y[3_000:3_001], y[3_001:]])

def totals():
    laid = gpu_pass.Laid(Reader(model, sequences), 32)
    shards = [{shard.device.id for shard in block.rows.addressable_shards} for block in laid.blocks]
    return laid.totals(model, params)[0], shards

one, places_of_one = on(1, totals)
four, places_of_four = on(4, totals)
assert set(map(len, places_of_one)) == {1} and set(map(len, places_of_four)) == {4}
assert len(places_of_one) > len(places_of_four) > 1
# The same windows, in single precision, added up in double precision in another order.
for found, expected in zip(four, one, strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-12)
# States that hardly ever change and hardly differ: the joints between devices are looked at, too.
slow = model.validate({
    "transition": [[0.9999, 1e-4], [1e-4, 0.9999]], "mean": [40.0, 40.01], "sd": np.ones(2)
})
laid = gpu_pass.Laid(Reader(model, open_data(y[:64])), 8, chunk=1)
assert laid.totals(model, slow) is None
"""

MINIBATCH = """
from longhmm.target.buffered import Buffered
pallas_windows.LARGE = 16  # 4 devices share from 64 windows on
sequences = open_data(y)
shared, calls = pallas_windows.on_each, []
pallas_windows.on_each = lambda *given: calls.append(1) or shared(*given)

def estimates():
    bound = Buffered(lh.Windows(2, 66), lh.FixedBuffer(3)).bind(model.resolve(sequences), sequences, params)
    narrow = jax.tree.map(jnp.asarray, lh.unconstrain(bound.model, params))
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in narrow.items()}
    held = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(bound.source.data)}

    def one(key):
        return bound.estimate(narrow, bound.minibatch(key)).gradient

    chains = jax.jit(jax.vmap(one), compiler_options=QUICK)(jax.random.split(jax.random.key(1), 2))
    return jax.device_get(chains), (held, len(calls) > 0)

one, places_of_one = on(1, estimates)
four, places_of_four = on(4, estimates)
assert places_of_one == ({1}, False) and places_of_four == ({4}, True)
for name, slope in one.items():
    assert slope.shape[0] == 2 and not np.array_equal(slope[0], slope[1])
    np.testing.assert_allclose(four[name], slope, rtol=1e-5, atol=1e-5 * np.abs(slope).max())
"""


def run_with_four_devices(script: str) -> None:
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(lh.__file__).parents[1]),
    }
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_a_full_pass_over_four_devices_is_that_of_one() -> None:
    run_with_four_devices(COMMON + FULL_PASS)


@pytest.mark.slow
def test_a_large_minibatch_over_four_devices_is_that_of_one() -> None:
    run_with_four_devices(COMMON + MINIBATCH)
