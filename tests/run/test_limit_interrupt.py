"""One SIGINT ends a process that samples, in every phase, with the draws so far where there are any."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

SOON = 60.0  # seconds until the process is gone: the compilation of one program on a busy machine, at most

SCRIPT = """
    import sys
    import longhmm as lh
    from longhmm.posterior.diagnostics import model_fit, verdict
    from longhmm.samplers import contract, mode

    def announced(module, name, forever=True):
        real = getattr(module, name)

        def work(*given, **options):
            print("HERE", flush=True)
            while forever:
                real(*given, **options)
            return real(*given, **options)

        setattr(module, name, work)

    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    y = lh.simulate(model, params, length=50_000, seed=1)[1]
    phase = sys.argv[1]
    options = {"chains": 2, "draws": 10, "progress": phase == "checks"}
    if phase == "mode":
        announced(mode, "_newton")
    elif phase == "adaptation":
        announced(contract, "_block", forever=False)
        options |= {"sampler": lh.NUTS(adaptation_steps=1_000_000), "init": params}
    else:
        verdict.LEAST_ESS, verdict.MOST_R_HAT = 0.0, 100.0
        announced(model_fit, "residuals")  # reads the data every time, where gradients are remembered
    try:
        posterior = lh.sample(model, y, **options)
        print("DRAWS", posterior.n_draws, posterior.verdict, flush=True)
    except KeyboardInterrupt:
        print("INTERRUPTED", flush=True)
"""


@pytest.mark.parametrize(
    ("phase", "outcome"),
    [("mode", "INTERRUPTED"), ("adaptation", "INTERRUPTED"), ("checks", "DRAWS 10 chains agree, rest unchecked")],
)
def test_one_sigint_ends_it(phase, outcome):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), phase]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    try:
        for line in process.stdout:
            if line.startswith("HERE"):
                break
        else:
            pytest.fail(process.stderr.read())
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        told = time.monotonic()
        rest, errors = process.communicate(timeout=SOON)
    finally:
        process.kill()
    assert outcome in rest, errors
    assert process.returncode == 0, errors
    assert time.monotonic() - told < SOON
