"""What every transition model has: a name, options, and the way through storage."""

import json

import jax
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.model.serialise import model_from_config, model_to_config
from model.leaving import MODEL, Leaving


def test_transitions_with_a_name_are_stored() -> None:
    config = json.loads(json.dumps(model_to_config(MODEL)))
    again = model_from_config(config)
    assert isinstance(again.transitions, Leaving) and model_to_config(again) == config
    assert jax.tree.structure(again) == jax.tree.structure(MODEL)
    for bad in ({"kind": "os.system"}, {"kind": "leaving", "options": {"wings": 2}}, {"kind": "dirichlet"}):
        with pytest.raises(ModelError, match="The stored transitions"):
            model_from_config({**config, "transitions": bad})
    mine = type("Mine", (Leaving,), {})
    with pytest.raises(ModelError, match="Mine is your own code"):
        model_to_config(lh.HMM(2, lh.Poisson(), transitions=mine()))
