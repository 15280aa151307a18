"""Every instruction set of the one build gives the same answers, whatever processor it was built on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from longhmm.backends import native

pytestmark = pytest.mark.skipif(not native.available(), reason="the fused kernel was not built here")

SCRIPT = """
import json, sys
import numpy as np
import longhmm as lh
from longhmm.backends import native

rng = np.random.default_rng(5)
found = {"status": native.status()}
for n_states, dim in ((1, 2), (3, 2), (8, 2), (11, 4)):
    model = lh.HMM(n_states, lh.Gaussian(dim=dim))
    params = {
        "transition": rng.dirichlet(np.ones(n_states), size=n_states),
        "mean": 2 * rng.normal(size=(n_states, dim)),
        "covariance": np.tile(0.7 * np.eye(dim) + 0.3, (n_states, 1, 1)),
    }
    y = rng.normal(size=(3000, dim)) * 3
    y[50:60] = np.nan
    slopes = lh.gradient(model, params, [y[:1700], y[1700:]], prior=False)
    found[f"{n_states} states, {dim} features"] = {
        "value": [lh.log_likelihood(model, params, y)],
        "path": lh.decode(model, params, y)[::7].tolist(),
        **{name: np.ravel(slope).tolist() for name, slope in slopes.items()},
    }
for n_states in (2, 3, 5, 8):  # a few matrices by row
    model = lh.HMM(n_states, lh.Gaussian(), transitions=lh.Logit(1))
    params = {
        "coefficients": rng.normal(size=(n_states, n_states, 2)) * ~np.eye(n_states, dtype=bool)[:, :, None],
        "mean": rng.normal(size=n_states),
        "sd": np.ones(n_states),
    }
    data = lh.open_data(rng.normal(size=3000), covariates=rng.integers(7, size=(3000, 1)))
    slopes = lh.gradient(model, params, data, prior=False)
    found[f"{n_states} states, covariates"] = {name: np.ravel(slope).tolist() for name, slope in slopes.items()}
json.dump(found, sys.stdout)
"""


def answers(instructions: str, python: str, environment: dict[str, str]) -> dict:
    asked = {**environment, "LONGHMM_INSTRUCTIONS": instructions}
    done = subprocess.run([python, "-c", SCRIPT], env=asked, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def compare_all(python: str, environment: dict[str, str]) -> list[str]:
    """The instruction sets of an installation that this processor has: all of them give the same answers."""
    found = {name: answers(name, python, environment) for name in ("AVX-512", "AVX2", "baseline")}
    there = {name: each for name, each in found.items() if name in each.pop("status")}
    best, *others = there
    for name in others:
        for case, parts in there[name].items():
            for part, values in parts.items():
                expected = there[best][case][part]
                scale = max(np.max(np.abs(expected), initial=0.0), 1e-3)
                error = np.max(np.abs(np.subtract(values, expected)), initial=0.0)
                assert error <= 1e-9 * scale, (name, case, part, error)
    return list(there)


@pytest.mark.slow
def test_all_instructions_agree():
    """A checkout has those of its own processor and the baseline; tests/test_wheels.py asks a wheel for all."""
    assert "baseline" in compare_all(sys.executable, dict(os.environ))
