"""Starting points of which only some parameters are given."""

from collections.abc import Mapping
from typing import Any

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.initialise import initial_params
from longhmm.model.parameters import free_names


def whole_init(model: HMM, sequences: Sequences, init: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """`init` with a guess from the data for every parameter that it leaves out."""
    needed = {model.transitions.parameter, *free_names(model.emission.parameters(model.n_states))}
    if init is None or needed <= set(init):
        return init
    guess = initial_params(model, sequences, restarts=1, seed=0)[0]
    unknown = sorted(set(init) - set(guess))
    if unknown:
        raise ModelError(f"init must hold parameters of the model, {', '.join(sorted(guess))}, got {unknown[0]!r}.")
    return {**guess, **init}
