"""The model as a tree: structure is static, every number is a leaf, and one program serves all data of one shape."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.model.initialise import initial_params
from longhmm.model.parameters import constrain, unconstrain
from longhmm.target.target import ExactPosterior
from model.configurations import named, names, observations

FINISHED = re.compile(r"Finished XLA compilation of jit\((\w+)\)")


def scaled(emission: Any, factor: float) -> Any:
    """The same emission with every number of its priors times a factor."""
    return jax.tree.map(lambda leaf: leaf * factor if np.asarray(leaf).dtype.kind == "f" else leaf, emission)


@pytest.mark.parametrize("name", names())
def test_an_emission_survives_the_way_through_a_program(name: str) -> None:
    configuration = named(name)
    emission, n_states = configuration.emission, configuration.n_states
    _, y = observations(configuration, 6)
    y = y if emission.vector_valued else y[:, 0]

    def everything(emission: Any, params: Any) -> Any:
        table = emission.parameters(n_states)
        again = constrain(table, unconstrain(table, params))
        return emission.log_density(again, y), emission.log_prior(again), emission.location(again), emission.fill(float)

    with jax.enable_x64(True):
        as_argument = jax.jit(everything)(emission, configuration.params)
        as_constant = jax.jit(lambda params: everything(emission, params))(configuration.params)
    for one, other in zip(as_argument, as_constant, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    leaves, structure = jax.tree.flatten(emission)
    again = jax.tree.unflatten(structure, leaves)
    assert repr(again) == repr(emission) and again.names == emission.names
    assert jax.tree.structure(again) == structure and hash(jax.tree.structure(again)) == hash(structure)


def test_numbers_of_every_kind_are_leaves() -> None:
    model = lh.HMM(2, lh.Gaussian(sd=2.0), transition_prior=3.0, fixed_rows={1: [0.5, 0.5]}, initial=[0.2, 0.8])
    numbers = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model.resolve(np.arange(50.0)))])
    for number in (2.0, 3.0, 0.2, 49.0):  # fixed value, concentration, initial probability, range of the data
        assert number in numbers


def test_what_is_structure_makes_another_tree() -> None:
    base = lh.HMM(2, lh.Gaussian())
    others = [
        lh.HMM(3, lh.Gaussian()),
        lh.HMM(2, lh.Gaussian(2)),
        lh.HMM(2, lh.Gaussian(sd=1.0)),
        lh.HMM(2, lh.Gaussian(), initial="stationary"),
        lh.HMM(2, lh.Gaussian(), transition_prior=[[1.0, 0.0], [1.0, 1.0]]),
        lh.HMM(2, lh.Gaussian(), fixed_rows={0: [0.5, 0.5]}),
        lh.HMM(2, lh.Tied(lh.Gaussian(), (0, 0))),
        lh.HMM(2, lh.StudentT()),
    ]
    trees = [jax.tree.structure(model) for model in (base, *others)]
    assert len({str(tree) for tree in trees}) == len(trees)
    assert jax.tree.structure(lh.HMM(2, lh.Gaussian(), transition_prior=9.0)) == trees[0]


@pytest.mark.parametrize("emission", [lh.Gaussian(), lh.StudentT(), lh.Poisson(), lh.VonMises(), lh.GaussianMixture()])
def test_one_program_serves_every_data_set_of_one_shape(emission: Any) -> None:
    rng = np.random.default_rng(0)
    traced = []

    @jax.jit
    def log_prior(model: lh.HMM, coordinates: Any) -> jax.Array:
        traced.append(1)
        return model.log_prior_unconstrained(coordinates)

    values = []
    for scale in (1.0, 3.0):
        data = rng.poisson(scale, 300) if isinstance(emission, lh.Poisson) else scale * rng.uniform(-1, 1, 300)
        model = lh.HMM(2, emission).resolve(data)
        start = initial_params(model, data, restarts=1)[0]
        at = {name: jnp.asarray(value) for name, value in lh.unconstrain(model, start).items()}
        values.append(float(log_prior(model, at)))
        assert values[-1] == pytest.approx(lh.log_prior(model, start), rel=1e-4)
    assert len(traced) == 1 and values[0] != values[1]


def compiled_by(caplog: pytest.LogCaptureFixture, work: Any) -> list[str]:
    """Names of the programs that are compiled meanwhile."""
    caplog.clear()
    with jax.log_compiles(True):
        work()
    return [match for record in caplog.records for match in FINISHED.findall(record.getMessage())]


@pytest.mark.parametrize("emission", [lh.Gaussian(), lh.StudentT(), lh.Poisson(), lh.Tied(lh.Gamma(), (0, 1))])
def test_gradients_on_other_data_compile_nothing(caplog: pytest.LogCaptureFixture, emission: Any) -> None:
    rng = np.random.default_rng(1)

    def work(scale: float) -> None:
        y = rng.gamma(2.0, scale, 500)
        y = np.floor(y) if isinstance(emission, lh.Poisson) else y
        model = lh.HMM(2, emission).resolve(y)
        params = initial_params(model, y, restarts=1)[0]
        lh.gradient(model, params, y)
        lh.log_likelihood(model, params, y)
        with jax.enable_x64(True):
            at = {name: jnp.asarray(value) for name, value in lh.unconstrain(model, params).items()}
            ExactPosterior.of(model, lh.open_data(y)).log_density_and_gradient(at)

    jax.clear_caches()  # other tests may have compiled the same
    assert {"_finish", "_run", "_evaluate"} <= set(compiled_by(caplog, lambda: work(1.0)))
    assert compiled_by(caplog, lambda: work(5.0)) == []
