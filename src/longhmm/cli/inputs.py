"""What a command was given: recordings, what is done to them first, a model; and what is refused at once."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import jax
import numpy as np

from longhmm.data.formats import EXAMPLE
from longhmm.data.parts import split
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError, ModelError
from longhmm.model.emissions import registry
from longhmm.model.hmm import HMM
from longhmm.model.serialise import PRIORS, prior_from_config
from longhmm.model.transitions import Sticky


def located(recordings: list[str]) -> list[str]:
    """Absolute paths, so that a run finds its data from anywhere; addresses and examples as they are."""
    return [
        each if "://" in each or each.startswith(EXAMPLE) else str(Path(each).expanduser().absolute())
        for each in recordings
    ]


def chosen_columns(given: list[str] | None) -> list[str | int] | None:
    """Columns by name, or by number where the text is one."""
    return [int(each) if each.isdigit() else each for each in given] if given else None


def open_recordings(recordings: list[str], dataset: str | None, columns: list[str | int] | None) -> Sequences:
    """The recording as it lies in its files."""
    where: Any = located(recordings)
    return open_data(where[0] if len(where) == 1 else where, dataset=dataset, columns=columns)


def steps_of(*, decimate: int, log: bool, detrend: bool, normalise: bool, sequences: Sequences) -> Preprocessing:
    """Preprocessing with its numbers measured on this recording."""
    if decimate >= sequences.length:
        raise DataError(f"--decimate must be below the {sequences.length} samples of {sequences.name}, got {decimate}.")
    return Preprocessing(decimate=decimate, log=log, detrend=detrend, normalise=normalise).measured(sequences)


def checked_rate(given: float | None, sequences: Sequences) -> float | None:
    """Samples per second: what the user says, or else what the file says."""
    if given is not None and not given > 0:
        raise DataError(f"--rate must be a positive number of samples per second, got {given:g}.")
    return sequences.rate if given is None else given


def build_model(name: str, n_states: int, data: Sequences, *, priors: list[str], stay: float | None) -> HMM:
    """The model that was asked for."""
    emission = registry.from_name(name, data, **dict(parse_prior(text) for text in priors))
    if stay is not None and not stay > 0:
        raise ModelError(f"--stay must be a positive number, got {stay:g}.")
    return HMM(n_states, emission, transition_prior=1.0 if stay is None else Sticky(stay=stay))


def parse_prior(text: str) -> tuple[str, Any]:
    """`name=Normal(0, 1)` or `name=4` as the name and its prior or fixed value; only known names are ever called."""
    name, found, right = text.partition("=")
    name = name.strip()
    wrong = ModelError(
        f"--prior must look like 'loc=Normal(0, 10)' or 'df=4', with one of {', '.join(sorted(PRIORS))}; got {text!r}."
    )
    if not found or not name.isidentifier():
        raise wrong
    try:
        tree = ast.parse(right.strip(), mode="eval").body
        if not isinstance(tree, ast.Call):
            return name, _numbers(tree)
        kind = tree.func.id if isinstance(tree.func, ast.Name) else ""
        names = PRIORS.get(kind)
        if names is None:
            raise wrong
        args = dict(zip(names, (_numbers(each) for each in tree.args), strict=False))
        args |= {str(each.arg): _numbers(each.value) for each in tree.keywords}
        if len(tree.args) > len(names) or set(args) != set(names):
            raise ModelError(f"--prior {name}={kind}(...) needs the numbers {', '.join(names)}; got {text!r}.")
        with jax.enable_x64(True):
            return name, prior_from_config({"distribution": kind, "args": args})
    except (SyntaxError, ValueError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise wrong from None


def _numbers(node: ast.expr) -> Any:
    """A number, or lists of numbers: the only values that a prior may have."""
    value = ast.literal_eval(node)
    if np.asarray(value).dtype.kind not in "iuf":
        raise ValueError("not a number")
    return value


def check(model: HMM, data: Sequences, held_out: float = 0.0) -> None:
    """Refuse a model that cannot have produced the data, or that has more states than they have observations."""
    if model.n_states > data.length:
        raise ModelError(f"--states must not exceed the {data.length:,} samples of {data.name}, got {model.n_states}.")
    resolved = model.resolve(data)
    if data.in_memory:
        resolved.check_data(data)  # what lies in files is checked whenever it is read
    if held_out:
        split(data, held_out)
