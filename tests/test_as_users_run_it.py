"""Compiled with all optimisations, as users run it: other tests switch most of them off to save time.

Each backend gives the gradient of a window in a process of its own. The window holds all data, so that the truth is the
slope of the log likelihood by plain recursions and finite differences.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.backends import native
from target.references import Coordinates, differences, flat, forward_log_likelihood

ROOT = Path(__file__).parents[1]
LENGTH = 41
PARAMS = {
    "initial": np.array([0.2, 0.5, 0.3]),
    "transition": np.array([[0.9, 0.09, 0.01], [0.2, 0.75, 0.05], [0.1, 0.2, 0.7]]),
    "rate": np.array([1.0, 3.0, 8.0]),
}
ROWS = np.random.default_rng(1).poisson(np.repeat([1, 8, 3, 2], [11, 10, 10, 10]))
SCRIPT = """
import json, os, sys
import jax, numpy as np
import longhmm as lh
from longhmm.backends import native
from longhmm.backends.evaluate import choose
from longhmm.backends.pallas import windows as pallas

assert not jax.config.values["jax_disable_most_optimizations"] and "XLA_FLAGS" not in os.environ
wanted, rows, params = json.load(sys.stdin)
if wanted == "pallas":  # without a GPU the kernel is interpreted
    native.usable, pallas.usable = (lambda: False), (lambda: True)
assert choose(1, 3, False, np.float32).name == wanted
params = {name: np.array(value) for name, value in params.items()}
model = lh.HMM(3, lh.Poisson(), initial=params["initial"]).resolve(np.array(rows))
whole = lh.Buffered(lh.Windows(half_width=len(rows) // 2, count=1), lh.FixedBuffer(4))
bound = whole.bind(model, lh.open_data(np.array(rows)), model.validate(params))

@jax.jit
def slope(coordinates, key):
    return bound.estimate(coordinates, bound.minibatch(key)).likelihood

at = {name: np.asarray(value, np.float32) for name, value in lh.unconstrain(model, params).items()}
found = slope(at, jax.random.key(0))
json.dump({name: np.asarray(value).tolist() for name, value in found.items()}, sys.stdout)
"""


@pytest.mark.parametrize("backend", ["cpp", "pallas", "reference"])
def test_gradients_are_right(backend):
    if backend == "cpp" and not native.available():
        pytest.skip("the fused kernel was not built here")
    folders = os.pathsep.join(str(ROOT / name) for name in ("src", "tests"))
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "JAX_PLATFORMS": "cpu", "PYTHONPATH": folders}
    environment["LONGHMM_NATIVE"] = str(int(backend == "cpp"))
    environment.pop("XLA_FLAGS", None)
    asked = json.dumps([backend, ROWS.tolist(), {name: value.tolist() for name, value in PARAMS.items()}])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=asked, capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr

    space = Coordinates(lh.HMM(3, lh.Poisson(), initial=PARAMS["initial"]), PARAMS)

    def log_likelihood(vector):
        natural = space.to_natural(vector)
        logs = stats.poisson.logpmf(ROWS[:, None], natural["rate"])
        return forward_log_likelihood(PARAMS["initial"], natural["transition"], logs, [LENGTH])

    expected = differences(log_likelihood, space.vector)
    assert np.abs(expected).min() > 0.05  # each coordinate is seen
    np.testing.assert_allclose(flat(json.loads(done.stdout)), expected, rtol=1e-4, atol=1e-4)  # single precision
