"""Emissions by name: which names there are, and which one the data suggest."""

import json

import numpy as np
import pytest

from longhmm.cli.options import build_model
from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.model.registry import EMISSIONS, guess_emission
from longhmm.model.serialise import model_from_config, model_to_config

RNG = np.random.default_rng(0)
SWITCHING = np.repeat(RNG.integers(0, 2, 50), 40)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (np.where(SWITCHING, 137.0, 48.0) + RNG.normal(0, 7, 2000), "gaussian"),
        (np.abs(RNG.normal(100, 5, (500, 3))), "gaussian"),
        (RNG.lognormal(np.where(SWITCHING, 4, 0), 2.0), "log-normal"),
        (RNG.poisson(np.where(SWITCHING, 12, 2)), "poisson"),
        (RNG.poisson(np.where(SWITCHING, 12.0, 2.0)).astype(float), "poisson"),
        (RNG.integers(0, 2, (500, 10)).astype(np.uint8), "bernoulli"),
        (RNG.integers(0, 4, 2000), "categorical"),
        (RNG.integers(-2000, 2000, 500).astype(np.int16), "gaussian"),
        (np.rint(RNG.normal(30000, 20, 500)).astype(np.uint16), "gaussian"),
    ],
)
def test_the_type_of_the_data_suggests_an_emission(values, wanted):
    found = guess_emission(open_data(values))
    assert found.name == wanted
    assert found.reason
    model = build_model(found.name, 2, open_data(values), priors=[], stay=None)
    assert model.dim == open_data(values).dim
    resolved = model.resolve(values)
    stored = json.loads(json.dumps(model_to_config(model)))
    assert repr(model_from_config(stored).resolve(values)) == repr(resolved)  # a run can be taken up again


def test_missing_values_do_not_matter_but_nothing_at_all_does():
    values = RNG.poisson(3.0, 300).astype(float)
    values[::7] = np.nan
    assert guess_emission(open_data(values)).name == "poisson"
    with pytest.raises(DataError, match="has no observed value"):
        guess_emission(open_data(np.full(10, np.nan)))


def test_names_are_read_from_files_as_they_are_registered():
    own = {name: each for name, each in EMISSIONS.classes().items() if each.__module__.startswith("longhmm.")}
    hidden = {"coloured", "distribution", "product", "tied"}  # which need more than a name
    hidden |= {"brightness", "by-formula", "drifting", "equally-spaced", "frame-average"}
    assert set(own) - hidden <= set(EMISSIONS.names()) and not hidden & set(EMISSIONS.names())
    assert {each.__name__: each.__module__ for each in own.values()}.items() <= EMISSIONS.modules().items()
