"""A whole model as plain names and numbers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from longhmm.model.config import emission_from_config, emission_to_config
from longhmm.model.hmm import HMM


def model_to_config(model: HMM) -> dict[str, Any]:
    """A JSON-able description of a whole model, or a ModelError where it contains a user's own code."""
    transitions = model.transitions
    return {
        "n_states": model.n_states,
        "emission": emission_to_config(model.emission),
        "transition_prior": transitions.concentration.tolist(),
        "fixed_rows": {str(row): law.tolist() for row, law in transitions.fixed_rows.items()},
        "initial": model.initial if isinstance(model.initial, str) else np.asarray(model.initial).tolist(),
    }


def model_from_config(config: Mapping[str, Any]) -> HMM:
    """Rebuild a model from its description; only allow-listed names are ever called."""
    return HMM(
        config["n_states"],
        emission_from_config(config["emission"]),
        transition_prior=np.asarray(config["transition_prior"], np.float64),
        fixed_rows={int(row): law for row, law in config["fixed_rows"].items()},
        initial=config["initial"],
    )
