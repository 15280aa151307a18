"""What the tests of single families check alike."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.data.rows import Rows
from longhmm.errors import DataError
from longhmm.model.parameters import constrain, coordinate_shapes
from longhmm.model.serialise import emission_from_config, emission_to_config, model_from_config, model_to_config
from longhmm.model.summary import summarise
from model.configurations import named, observations

MOVES = np.array([[0.95, 0.05], [0.1, 0.9]])


def natural_parameters_give_the_density(name: str) -> None:
    """Of an emission of the table that has a linear lowering."""
    configuration = named(name)
    emission: Any = configuration.emission
    _, y = observations(configuration, 8)

    @jax.jit
    def both(params: Any) -> Any:
        eta, log_normaliser = emission.natural_parameters(params)
        base = emission.log_base_measure(y) if hasattr(emission, "log_base_measure") else 0.0 * y
        base = base.sum(-1, keepdims=True) - log_normaliser.sum(-1)
        return (emission.lowering.numbers(y) @ eta.T + base,
                emission.log_density(params, y if emission.vector_valued else y[:, 0]))  # fmt: skip

    with jax.enable_x64(True):
        natural, direct = both(configuration.params)
    np.testing.assert_allclose(natural, direct, rtol=1e-9, atol=1e-9)


def default_priors_wait_for_the_data_and_are_finite(family: lh.Emission, *, shapes_known: bool = True) -> None:
    n_states = 3
    assert not family.is_resolved
    if shapes_known:
        table = family.parameters(n_states)
        assert all(parameter.is_free and parameter.prior is None for parameter in table.values())
    varied, constant = np.arange(60.0 * family.dim).reshape(60, -1) % 3, np.ones((60, family.dim))
    hole = np.arange(60)[:, None] == 5
    with jax.enable_x64(True):
        both = [family.resolve(summarise(np.where(hole, np.nan, values))) for values in (varied, constant)]
        assert all(one.is_resolved for one in both)
        origins = [
            {key: np.zeros(shape) for key, shape in coordinate_shapes(one.parameters(n_states)).items()} for one in both
        ]

        @jax.jit
        def log_priors(coordinates: Any) -> Any:
            pairs = zip(both, coordinates, strict=True)
            return [one.log_prior(constrain(one.parameters(n_states), u)) for one, u in pairs]

        assert np.all(np.isfinite(log_priors(origins)))
    assert set(emission_from_config(emission_to_config(both[0])).names) == set(family.names)
    assert emission_from_config(emission_to_config(family)).is_resolved is False


def impossible_value_is_reported(emission: lh.Emission, value: float, message: str) -> None:
    values = np.array([[1], [1], [value]])
    with pytest.raises(DataError, match=message):
        emission.check(values, np.ones((3, 1), bool), lambda row: f"row {row} of counts.npy")
    emission.check(values, np.array([[True], [True], [False]]), str)


def density_and_distribution_function_are_those_of_scipy(emission: Any, params: Any, law: Any) -> None:
    """Of values between 0 and 1; `law(k)` is what state k must emit."""
    y = np.linspace(0.05, 0.95, 7)[:, None]
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        logs = emission.log_likelihoods(arrays, Rows(y, y < 0.9))
        below = emission.cdf(arrays, jnp.asarray(y))[1][..., 0]
    for state in range(2):
        np.testing.assert_allclose(logs[:, state], np.where(y < 0.9, law(state).logpdf(y), 0.0)[:, 0])
        np.testing.assert_allclose(below[:, state], law(state).cdf(y)[:, 0], rtol=1e-6)


def simulated(emission: Any, params: Any) -> tuple[lh.HMM, dict[str, Any], list[np.ndarray]]:
    model, natural = lh.HMM(2, emission), {"transition": MOVES, **params}
    sequences = [np.array(each, np.float64) for each in lh.simulate(model, natural, [1500, 700, 1], seed=1)[1]]
    sequences[0][100] = np.nan
    return model, natural, sequences


def it_is_coherent_stored_and_refuses_other_numbers(emission: Any, params: Any) -> None:
    model, natural, sequences = simulated(emission, params)
    lh.testing.check_coherence(model, natural, sequences[0][90:130])
    config = model_to_config(model.resolve(sequences))
    assert model_to_config(model_from_config(config)) == config
    with pytest.raises(DataError, match="needs"):
        lh.log_likelihood(model, natural, np.array([0.5, -1.0]))


def fits_recover_what_was_simulated(emission: Any, params: Any) -> None:
    model, _, sequences = simulated(emission, params)
    fit = lh.fit_em(model, sequences, seed=0, progress=False)
    with jax.enable_x64(True):
        order = np.argsort(
            np.asarray(emission.means({name: jnp.asarray(value) for name, value in params.items()}))[:, 0]
        )
    for name, value in params.items():
        np.testing.assert_allclose(fit.params[name], value[order], rtol=0.25)
