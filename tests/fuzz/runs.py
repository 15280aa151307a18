"""Run directories in which something is wrong: files damaged, missing, exchanged, or made up."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import longhmm as lh
from fuzz.files import Code, damage
from fuzz.options import judged
from fuzz.outcome import Case, Lost
from longhmm.data.preprocess import Preprocessing
from longhmm.model.serialise import model_to_config
from longhmm.posterior.run_directory import RunDirectory
from longhmm.run import checkpoint
from posterior.fakes import known_states

VALUES = (None, -1, 0, 1e308, "", "x" * 5000, [], {}, [[]], True, "../../etc/passwd", {"a": {"b": [1]}}, "NaN")


@functools.cache
def whole() -> Path:
    """A sound run with request, checkpoint and posterior, made once for the process."""
    place = Path(tempfile.mkdtemp(prefix="longhmm-fuzz-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    known = known_states(200)
    np.save(place / "y.npy", known.sequences.rows(0, 200).values)
    posterior = known.posterior()
    request = {
        "recordings": [str(place / "y.npy")],
        "dataset": None,
        "columns": None,
        "rate": 100.0,
        "unit": "pA",
        "preprocessing": Preprocessing().to_dict(),
        "held_out": 0.0,
        "model": model_to_config(posterior.model),
        "sample": {"sampler": "gibbs", "chains": 4, "draws": 500, "seed": 0, "time_limit": None},
    }
    run = RunDirectory.create(place / "run", request)
    run.save(posterior)
    checkpoint.save(run.path, {"fingerprint": "x", "thin": 1, "rounds": 0}, {"x": np.arange(10)})
    return run.path


def _change(rng: np.random.Generator, document: object, depth: int = 0) -> object:
    """A JSON document with one entry changed somewhere inside."""
    if isinstance(document, dict) and document and (depth == 0 or rng.random() < 0.8):
        key = str(rng.choice(sorted(document)))
        if rng.random() < 0.15:
            return {name: value for name, value in document.items() if name != key}
        return {**document, key: _change(rng, document[key], depth + 1)}
    if isinstance(document, list) and document and rng.random() < 0.5:
        place = int(rng.integers(len(document)))
        return [*document[:place], _change(rng, document[place], depth + 1), *document[place + 1 :]]
    return VALUES[rng.integers(len(VALUES))]


def run_case(seed: int) -> Case:
    """Damage one file of a run, then load it, or ask a command for it."""
    rng = np.random.default_rng([seed, 5])
    way = ("load", "checkpoint", "decode", "resume", "report", "load", "load")[seed % 7]

    def run(folder: Path) -> None:
        place = folder / "run"
        shutil.copytree(whole(), place)
        files = sorted(file for file in place.rglob("*") if file.is_file())
        named = [file for file in files if file.suffix == ".json"]
        chosen = named[rng.integers(len(named))] if rng.random() < 0.7 else files[rng.integers(len(files))]
        if way == "checkpoint":
            chosen = place / checkpoint.NAME
        if way in ("resume", "decode") and rng.random() < 0.6:
            chosen = place / "run.json"
        mark = folder / "code-was-run"
        what = rng.random()
        if what < 0.1:
            chosen.unlink()
        elif what < 0.15:
            np.savez(chosen, x=np.array([Code(mark)], dtype=object))
        elif chosen.suffix == ".json" and what < 0.75:
            chosen.write_text(json.dumps(_change(rng, json.loads(chosen.read_text()))))
        else:
            chosen.write_bytes(damage(rng, chosen.read_bytes() or b"{}")[1])
        try:
            if way == "load":
                lh.load(place).summary()
            elif way == "checkpoint":
                checkpoint.load(place)
            else:
                if way == "resume":  # nothing is to be computed here: only a finished run is left as it is
                    shutil.rmtree(place / "posterior", ignore_errors=True)
                out = ["--out", str(folder / "events.csv")] if way == "decode" else []
                judged(CliRunner(), [way, str(place), *out])
        finally:
            if mark.exists():
                raise Lost(f"code in {chosen.name} was run")

    return Case(f"run {seed}: {way}", run)
