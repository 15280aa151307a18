"""What kernels make of an emission's lowering: its log densities, its expected statistics and its gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longhmm.backends.protocol import GAUSSIAN, LINEAR, TABLE
from longhmm.backends.reference import expected_sums, log_likelihoods
from model.configurations import configurations, log_law, named, observations

# Densities that the C++ kernel alone knows are compared where it is.
LOWERED = [each.name for each in configurations() if getattr(each.emission.lowering, "sufficient", False)]


def test_the_families_that_have_a_kind() -> None:
    kinds = {name: named(name).emission.lowering.kind for name in LOWERED}
    expected = {"log-normal": GAUSSIAN, "tied": GAUSSIAN, "flat-priors": GAUSSIAN, "categorical": TABLE}
    expected |= {name: GAUSSIAN for name in LOWERED if name.startswith("gaussian")}
    assert kinds == expected | dict.fromkeys(("gamma-2d", "poisson", "bernoulli-3d", "von-mises"), LINEAR)


@pytest.mark.parametrize("name", LOWERED)
def test_numbers_and_sums_say_all_that_the_emission_says(name: str) -> None:
    configuration = named(name)
    emission, lowering = configuration.emission, configuration.emission.lowering
    y = observations(configuration, 30)[1]
    y[4] = np.nan
    seen = np.arange(30) != 4
    gamma = np.random.default_rng(0).dirichlet(np.ones(configuration.n_states), size=30)
    with jax.enable_x64(True):
        params = {key: jnp.asarray(value, jnp.float64) for key, value in configuration.params.items()}
        rows = jnp.asarray(lowering.rows(y, ~np.isnan(y)))
        how, natural = (lowering.kind, lowering.width), lowering.natural(params)
        logs = np.asarray(log_likelihoods(*how, rows, natural))
        base = float(lowering.log_base_measure(y, ~np.isnan(y)))
        sums = expected_sums(*how, rows, natural, jnp.asarray(gamma))
        shaped = jnp.asarray(y[seen] if emission.vector_valued else y[seen, 0])

        def expected_log_density(at: dict[str, jax.Array]) -> jax.Array:
            return jnp.sum(gamma[seen] * emission.log_density({**params, **at}, shaped))

        free = {key: params[key] for key in emission.free_names}
        slopes = jax.grad(expected_log_density)(free)
        found = lowering.gradient(params, sums)
        other = {key: 1.01 * value for key, value in free.items()}
        gain = lowering.expected_log_density({**params, **other}, params, sums)
        gain = gain - lowering.expected_log_density(params, params, sums)
        wanted = expected_log_density(other) - expected_log_density({})
    assert (logs[4] == 0).all()
    for k in range(configuration.n_states):
        law = configuration.law(configuration.params, k)
        laws = law if isinstance(law, list) else [law]
        columns = y[seen].T if isinstance(law, list) else [y[seen]]
        exact = sum(float(np.sum(log_law(one, column))) for one, column in zip(laws, columns, strict=True))
        assert logs[:, k].sum() + base == pytest.approx(exact, rel=1e-10)
    for key in free:
        np.testing.assert_allclose(found[key], slopes[key], rtol=1e-9, atol=1e-9, err_msg=key)
    np.testing.assert_allclose(gain, wanted, rtol=1e-9, atol=1e-9)
