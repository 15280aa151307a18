"""What the user asked of a run, and the fingerprint by which its checkpoint is known again: digests, under the words of
a user, of all that decides which draws it makes. With more draws or time the same run goes on."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.source import Source
from longhmm.errors import ModelError, check_whole
from longhmm.model.hmm import HMM
from longhmm.model.parameters import coordinate_shapes
from longhmm.model.serialise import emission_to_config, transitions_to_config
from longhmm.run.checkpoint import to_plain
from longhmm.samplers.contract import Sampler
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.systematic import Windows

Fingerprint = dict[str, dict[str, str]]
POINTS, ROWS = 3, 64  # parameters and observations at which a density of the user's own is evaluated
DIGITS = 9  # of its logarithm that are compared: the last ones differ between machines
WORDS = {"model": "the model differs", "data": "the data differ", "settings": "the settings differ"}
SETTINGS = ("sampler", "windows", "buffer", "chains", "warmup", "thin", "init", "seed")  # that decide about draws
LEAST = {"chains": 1, "draws": 1, "warmup": 0, "thin": 1}
# Bytes of values up to which all are digested; of longer files size, time of change and blocks spread over them are.
WHOLE = 1 << 30
BLOCKS, BLOCK_ROWS = 64, 4096
AT_ONCE = 1 << 20  # values digested at a time
COLUMNS = {"values": "values", "mask": "mask", "states": "known states", "covariates": "covariates"}


@dataclass(frozen=True)
class Request:
    """What the user asked for, with data that are open and a model that has numbers for all its priors."""

    model: HMM
    sequences: Sequences
    sampler: Sampler
    windows: Windows | None = None
    buffer: LyapunovBuffer | FixedBuffer | None = None
    chains: int = 4
    draws: int = 1000
    warmup: int | None = None
    thin: int | None = None
    init: Mapping[str, Any] | None = None
    seed: int = 0
    checkpoint: str | os.PathLike[str] | None = None
    client: Any = None
    automatic: bool = False  # whether the sampler was left to us
    spaced: bool = False  # whether draws are to be moved apart until they are nearly independent

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) is not None or name in ("chains", "draws"):
                check_whole(name, getattr(self, name), least)

    def fingerprint(self) -> Fingerprint:
        settings = {name: getattr(self, name) for name in SETTINGS}
        return fingerprint(self.model, self.sequences, settings | ({"sampler": None} if self.automatic else {}))

    def settings(self) -> dict[str, Any]:
        """The request as plain values; a sampler that is not longhmm's own is left out."""
        found: dict[str, Any] = {name: getattr(self, name) for name in (*LEAST, "seed", "automatic")}
        found["init"] = None if self.init is None else {k: np.asarray(v).tolist() for k, v in self.init.items()}
        for name in ("sampler", "windows", "buffer"):
            try:
                found[name] = to_plain(getattr(self, name))
            except ModelError:
                found[name] = None
        return found


def fingerprint(model: HMM, sequences: Sequences, settings: Mapping[str, Any]) -> Fingerprint:
    """Digests of every part of a model with numbers for all its priors, of its data, and of the settings."""
    return {
        "model": {name: _hash(value) for name, value in _described_model(model, sequences).items()},
        "settings": {name: _hash(to_plain(value, described=True)) for name, value in settings.items()},
        "data": digest(sequences),
    }


def differences(stored: Mapping[str, Mapping[str, str]], now: Fingerprint) -> list[str]:
    """What differs between two fingerprints, as parts of a sentence."""
    found = []
    for kind, words in WORDS.items():
        before = dict(stored.get(kind, {}))
        parts = [name for name in {**now[kind], **before} if before.get(name) != now[kind].get(name)]
        if parts:
            found.append(f"{words} ({', '.join(parts)})")
    return found


def refusal(stored: Any, now: Fingerprint) -> str:
    """Why a run must not go on from what was stored; empty where it may."""
    found = differences(stored if isinstance(stored, dict) else {}, now)
    blocks = "size" in now["data"] and any(each.startswith(WORDS["data"]) for each in found)
    how = f" (of these files size, time of change and {BLOCKS} blocks are compared, not every value)" if blocks else ""
    return " and ".join(found) + how


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _described_model(model: HMM, sequences: Sequences) -> dict[str, Any]:
    """Its parts as names and numbers; a user's own code has none, and is known by what it computes."""
    found: dict[str, Any] = {"n_states": model.n_states, "initial": to_plain(model.initial, described=True)}
    try:
        found["emission"] = emission_to_config(model.emission)
    except ModelError:
        table = model.emission.parameters(model.n_states)
        fixed = {name: each.value.tolist() for name, each in table.items() if each.value is not None}
        found["emission"] = [model.emission.name, fixed, _computed(model, sequences, "emission")]
    try:
        found["transitions"] = transitions_to_config(model.transitions)
    except ModelError:
        found["transitions"] = _computed(model, sequences, "transitions")
    return found


def _computed(model: HMM, sequences: Sequences, part: str) -> list[str]:
    """What a part of the model gives at some fixed parameters and at rows spread over the data."""

    def at_params(params: dict[str, jax.Array]) -> tuple[Any, ...]:
        if part == "emission":
            return model.log_likelihoods(params, rows), model.emission.log_prior(params)
        coefficients = params[model.transitions.parameter]
        return model.transitions.matrices(coefficients, rows.covariates), model.transitions.log_prior(coefficients)

    shapes = {**coordinate_shapes(model.emission.parameters(model.n_states)), "transition": (model.transitions.n_free,)}
    starts = np.linspace(0, sequences.length - 1, ROWS).astype(np.int64)
    single = [sequences.rows(int(start), int(start) + 1, model.lags) for start in starts]
    rows = jax.tree.map(lambda *each: np.concatenate(each), *single)
    rng, seen = np.random.default_rng(0), []
    with jax.enable_x64(True):
        for _ in range(POINTS):
            at = {name: jnp.asarray(rng.normal(0, 0.5, shape)) for name, shape in shapes.items()}
            seen += [number for each in at_params(model.constrain(at)) for number in np.ravel(each)]
    return [f"{float(each):.{DIGITS}g}" for each in seen]


def digest(sequences: Sequences) -> dict[str, str]:
    """What tells these data from others, by the words in which a user would say it."""
    length, rows = sequences.length, max(1, AT_ONCE // sequences.dim)
    whole = sequences.in_memory or length * sequences.dim * sequences.dtype.itemsize <= WHOLE
    starts = np.arange(0, length, rows)
    if not whole:
        starts, rows = np.unique(np.linspace(0, max(length - BLOCK_ROWS, 0), BLOCKS).astype(np.int64)), BLOCK_ROWS
    digests = {name: hashlib.sha256() for name in COLUMNS}
    for start in map(int, starts):
        for name, values in sequences.stored(start, min(start + rows, length)).items():
            same = values != 0 if name == "mask" else values.astype(np.int64) if name == "states" else values
            digests[name].update(np.ascontiguousarray(same).data)
    return {
        "shape": f"{length} rows of {sequences.dim}",
        "type": str(sequences.dtype),
        **{COLUMNS[name]: sha.hexdigest() for name, sha in digests.items()},
        "ends of the sequences": hashlib.sha256(sequences.offsets.tobytes()).hexdigest(),
        **({} if whole else _of_files(sequences.source)),
    }


def _of_files(source: Source) -> dict[str, str]:
    """Of the files or folders on this machine that a source reads from, as far as they are known."""
    sizes, times, ahead = [], [], [source]
    while ahead:
        each = ahead.pop()
        ahead.extend(reversed(each.parts))
        if not each.parts and each.path is not None and each.path.exists():
            inside = [each.path] if each.path.is_file() else [file for file in each.path.rglob("*") if file.is_file()]
            seen = [file.stat() for file in inside]
            sizes.append(sum(file.st_size for file in seen))
            times.append(max((file.st_mtime_ns for file in seen), default=0))
    return {"size": " ".join(map(str, sizes)), "time of change": " ".join(map(str, times))}
