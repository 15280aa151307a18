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
json.dump(found, sys.stdout)
"""


def answers(instructions: str) -> dict:
    environment = {**os.environ, "LONGHMM_INSTRUCTIONS": instructions}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert instructions in found.pop("status")
    return found


@pytest.mark.slow
def test_all_instructions_agree():
    best = native.status().split(": ")[1].split(",")[0]
    sets = ["AVX-512", "AVX2", "baseline"]
    available = sets[sets.index(best) :]
    if len(available) == 1:
        pytest.skip("this processor has one set of instructions only")
    expected = answers(available[0])
    for name in available[1:]:
        for case, parts in answers(name).items():
            for part, values in parts.items():
                scale = max(np.max(np.abs(expected[case][part]), initial=0.0), 1e-3)
                error = np.max(np.abs(np.subtract(values, expected[case][part])), initial=0.0)
                assert error <= 1e-9 * scale, (name, case, part, error)
