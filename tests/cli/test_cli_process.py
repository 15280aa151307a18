"""The command as the shell meets it: quick help, completion, Ctrl-C."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import longhmm as lh

COMMAND = [sys.executable, "-m", "longhmm"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(lh.__file__).parents[1])}  # the code under test, installed or not


def _spent() -> float:
    """Seconds that finished children have computed: a busy machine does not change them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_at_once_and_loads_nothing_heavy():
    times = []
    for _ in range(5):
        began = _spent()
        done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True, env=ENVIRONMENT)
        times.append(_spent() - began)
    for name in ("fit", "resume", "decode", "report", "compare", "simulate", "view", "doctor"):
        assert name in done.stdout
    script = "import sys, longhmm.cli; print([m for m in ('jax', 'numpy', 'pandas', 'xarray') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert loaded.stdout.strip() == "[]"
    assert min(times) < 0.5


def test_completion_offers_the_commands():
    script = "from longhmm.cli import app; app(prog_name='longhmm')"
    env = ENVIRONMENT | {"_LONGHMM_COMPLETE": "complete_bash", "COMP_WORDS": "longhmm de", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert done.stdout.split() == ["decode"]


def test_a_failure_is_one_sentence_on_standard_error(tmp_path):
    done = subprocess.run(
        [*COMMAND, "fit", str(tmp_path / "missing.npy"), "--states", "2"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "does not exist" in done.stderr
    assert list(tmp_path.iterdir()) == []


def _interrupted(command, run, patience):
    """What a command prints, and how it ends, that gets Ctrl-C so many seconds after its first checkpoint."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    deadline = time.monotonic() + 300
    while not (run / "checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(patience)
    running.send_signal(signal.SIGINT)
    return running.communicate(timeout=300)[0], running.returncode


@pytest.mark.slow
def test_ctrl_c_keeps_the_draws_and_resume_ends_where_an_undisturbed_run_does(tmp_path):
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.95, 0.05], [0.1, 0.9]], "rate": [2.0, 12.0]}
    _, values = lh.simulate(model, params, 20_000, seed=1)
    np.save(tmp_path / "y.npy", values[:, 0])
    words = ["--states", "2", "--sampler", "gibbs", "--chains", "2", "--draws", "10000", "--json"]
    fit = [*COMMAND, "fit", str(tmp_path / "y.npy"), *words]
    # The first block is compiled before its draws are there; how long that takes depends on the machine.
    for patience in (4, 7, 11, 16, 24, 36):
        printed, code = _interrupted([*fit, "--out", str(tmp_path / "run"), "--overwrite"], tmp_path / "run", patience)
        if "stopped" in printed:
            break
    assert code == 130
    assert "Ctrl-C" in json.loads(printed)["stopped"]
    assert 0 < lh.load(tmp_path / "run").n_draws < 10000
    subprocess.run(
        [*COMMAND, "resume", str(tmp_path / "run"), "--json"], check=True, capture_output=True, env=ENVIRONMENT
    )
    subprocess.run([*fit, "--out", str(tmp_path / "straight")], check=True, capture_output=True, env=ENVIRONMENT)
    one, other = lh.load(tmp_path / "run"), lh.load(tmp_path / "straight")
    assert one.n_draws == 10000
    np.testing.assert_array_equal(one.draws["rate"], other.draws["rate"])
