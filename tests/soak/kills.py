"""Real processes killed (SIGKILL) at random moments: what they had saved is there, and the draws end up the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import longhmm as lh
from longhmm.run import checkpoint

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(lh.__file__).parents[1]), "PYTHONWARNINGS": "error::UserWarning"}
# A checkpoint after every block instead of every half minute, so that kills fall into writing as often as between.
COMMAND = """
import longhmm.run.run, longhmm.run.driver
longhmm.run.run.SAVE_EVERY = 0.0
longhmm.run.driver.BLOCK_STEPS = 200
from longhmm.cli import main
main()
"""
WRITER = """
import itertools, sys
import numpy as np
from longhmm.run import checkpoint
for number in itertools.count():
    checkpoint.save(sys.argv[1], {"number": number}, {"x": np.full(20_000, number)})
    print(number, flush=True)
"""


class Outcome(NamedTuple):
    """How often a process was killed, and what was lost (a sentence each)."""

    kills: int
    lost: list[str]


def kill_writers(place: Path, kills: int, seed: int = 0) -> Outcome:
    """Kill processes that do nothing but write checkpoints: the last one they reported must be there, or a newer."""
    rng = np.random.default_rng(seed)
    lost = []
    for kill in range(kills):
        folder = place / f"writer-{kill}"
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.1))
        writer.kill()
        reported = [int(line) for line in writer.stdout.read().split()]
        writer.wait()
        try:
            found = checkpoint.load(folder)
            number = -1 if found is None else found[0]["number"]
            if number < max(reported, default=0) or not np.all(found[1]["x"] == number):
                lost.append(f"writer {kill}: {max(reported)} was saved but {number} was found")
        except lh.errors.LongHMMError as error:
            lost.append(f"writer {kill}: {error}")
    return Outcome(kills, lost)


def kill_fits(place: Path, kills: int, seed: int = 0, sampler: str = "sgld-cv", draws: int = 300) -> Outcome:
    """Kill `longhmm fit`, then `longhmm resume` again and again; the draws are those of a run left alone."""
    place.mkdir(parents=True, exist_ok=True)
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.95, 0.05], [0.1, 0.9]], "rate": [2.0, 12.0]}
    _, values = lh.simulate(model, params, 20_000, seed=1)
    np.save(place / "y.npy", values[:, 0])
    words = ["--states", "2", "--sampler", sampler, "--chains", "2", "--draws", str(draws), "--json"]
    fit = ["fit", str(place / "y.npy"), *words, "--out"]
    _finish([*fit, str(place / "straight")])
    expected = lh.load(place / "straight").draws
    began = time.monotonic()  # a second time with everything compiled: the length that kills are spread over
    _finish([*fit, str(place / "again")])
    length = time.monotonic() - began
    rng = np.random.default_rng(seed)
    lost, done, run = [], 0, 0
    while done < kills:
        folder = place / f"run-{run}"
        command, run = [*fit, str(folder)], run + 1
        for _ in range(5):  # one run is killed up to so many times before it may finish
            moment = rng.uniform(0.1, 1.0) * length
            killed = _killed(command, moment)
            done += killed
            command = ["resume", str(folder), "--json"] if (folder / "run.json").exists() else command
            if not killed or done >= kills:  # a run that had ended cannot be killed any more
                break
        try:
            _finish(command)
            draws_now = lh.load(folder).draws
            if not all(np.array_equal(draws_now[name], expected[name]) for name in expected):
                lost.append(f"{folder.name}: other draws than a run left alone")
        except (AssertionError, lh.errors.LongHMMError) as error:
            lost.append(f"{folder.name}: {error}")
    return Outcome(done, lost)


def _finish(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, env=ENVIRONMENT, timeout=900
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert json.loads(done.stdout)["stopped"] is None


def _killed(words: list[str], moment: float) -> bool:
    """Start a command and kill it at a moment; False if it had ended before."""
    running = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    try:
        running.wait(moment)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
        return True
    return False
