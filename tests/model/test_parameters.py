"""Coordinates: values survive the round trip, and the Jacobian is the determinant of the map."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.distributions.constraints import Constraint

from longhmm import Emission
from longhmm.errors import ModelError
from longhmm.model import parameters
from longhmm.model.parameters import Parameter
from model.configurations import named, names

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("name", names())
def test_values_survive_the_round_trip(name: str) -> None:
    configuration = named(name)
    table = configuration.emission.parameters(configuration.n_states)

    def there_and_back(params: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        u = parameters.unconstrain(table, params)
        return u, parameters.constrain(table, u)

    u, again = jax.jit(there_and_back)(configuration.params)
    assert {key: value.shape for key, value in u.items()} == parameters.coordinate_shapes(table)
    assert set(again) == set(configuration.params)
    for key, value in configuration.params.items():
        np.testing.assert_allclose(again[key], value, rtol=1e-9, atol=1e-9)
        assert np.issubdtype(again[key].dtype, np.integer) == np.issubdtype(value.dtype, np.integer)
    for key, parameter in table.items():
        assert (key in u) == parameter.is_free


# The entries of a value that vary freely: a simplex has one fewer than its size, a symmetric matrix its triangle.
FREE_ENTRIES = {
    "real": lambda x: x,
    "positive": lambda x: x,
    "interval": lambda x: x,
    "simplex": lambda x: x[..., :-1],
    "ordered": lambda x: x,
    "covariance": lambda x: jnp.stack([x[..., i, j] for i in range(3) for j in range(i + 1)], -1),
}


@pytest.mark.parametrize(
    ("kind", "support", "tail"),
    [
        ("real", constraints.real, (2,)),
        ("positive", constraints.positive, ()),
        ("interval", constraints.interval(-1.0, 4.0), ()),
        ("simplex", constraints.simplex, (4,)),
        ("ordered", constraints.ordered_vector, (3,)),
        ("covariance", constraints.positive_definite, (3, 3)),
    ],
)
def test_jacobian_is_the_determinant(kind: str, support: Constraint, tail: tuple[int, ...]) -> None:
    table = {"x": Parameter("x", (2, *tail), None, None, support),
             "fixed": Parameter("fixed", (2,), None, np.array([1.0, 2.0]), None)}  # fmt: skip
    shape = parameters.coordinate_shapes(table)["x"]
    u = np.random.default_rng(0).normal(size=shape)

    def entries(flat: jax.Array) -> jax.Array:
        return jnp.ravel(FREE_ENTRIES[kind](parameters.constrain(table, {"x": flat.reshape(shape)})["x"]))

    matrix = jax.jit(jax.jacobian(entries))(u.ravel())
    assert matrix.shape == (u.size, u.size)
    expected = np.linalg.slogdet(matrix)[1]
    assert float(parameters.log_abs_det_jacobian(table, {"x": u})) == pytest.approx(expected, rel=1e-9)


def test_a_density_keeps_its_mass_under_a_change_of_coordinates() -> None:
    emission = Emission(dist.Normal, loc=0.0, scale=dist.Gamma(3.0, 2.0))
    table = emission.parameters(1)
    grid = np.linspace(-12.0, 6.0, 20_001)

    def log_density(u: jax.Array) -> jax.Array:
        coordinates = {"scale": u[None]}
        params = parameters.constrain(table, coordinates)
        return emission.log_prior(params) + parameters.log_abs_det_jacobian(table, coordinates)

    density = np.exp(np.asarray(jax.jit(jax.vmap(log_density))(grid)))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-9)


def test_constants_follow_the_precision_of_the_coordinates() -> None:
    table = Emission(dist.StudentT, df=4.0, loc=dist.Normal(0.0, 1.0), scale=1.0).parameters(2)
    params = parameters.constrain(table, {"loc": jnp.zeros(2, jnp.float32)})
    assert {value.dtype for value in params.values()} == {np.dtype(np.float32)}


def test_wrong_names_and_shapes_are_named() -> None:
    table = Emission(dist.Normal, loc=dist.Normal(0.0, 1.0), scale=1.0).parameters(2)
    with pytest.raises(ModelError, match="must hold 'loc', an array of shape"):
        parameters.unconstrain(table, {"mean": np.zeros(2)})
    with pytest.raises(ModelError, match=r"params\['loc'\] must have shape \(2,\), states first, got shape \(3,\)"):
        parameters.unconstrain(table, {"loc": np.zeros(3)})
