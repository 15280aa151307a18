"""What can be refused before anything is computed or written."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from longhmm.errors import LongHMMError, ModelError

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences
    from longhmm.model.hmm import HMM


def check(model: HMM, data: Sequences, held_out: float = 0.0) -> None:
    """Refuse a model that cannot have produced the data, or that has more states than they have observations."""
    from longhmm.posterior.split import split

    if model.n_states > data.length:
        raise ModelError(f"--states must not exceed the {data.length:,} samples of {data.name}, got {model.n_states}.")
    resolved = model.resolve(data)
    if data.in_memory:
        resolved.check_data(data)  # what lies in files is checked whenever it is read
    if held_out:
        split(data, held_out)


def needs_reproduction() -> None:
    """A clear sentence where the paper's models and experiments, a package of their own, were not installed."""
    if find_spec("longhmm_reproduction") is None:
        raise LongHMMError(
            "the paper's models and experiments are in the package longhmm_reproduction, which is not installed here; "
            "install longhmm from its wheel or from a checkout."
        )
