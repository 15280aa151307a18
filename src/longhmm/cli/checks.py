"""What can be refused before anything is computed or written."""

from __future__ import annotations

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.split import split


def check(model: HMM, data: Sequences, held_out: float = 0.0) -> None:
    """Refuse a model that cannot have produced the data, or that has more states than they have observations."""
    if model.n_states > data.length:
        raise ModelError(f"--states must not exceed the {data.length:,} samples of {data.name}, got {model.n_states}.")
    resolved = model.resolve(data)
    if data.in_memory:
        resolved.check_data(data)  # what lies in files is checked whenever it is read
    if held_out:
        split(data, held_out)
