"""Student's t and mixtures as the C++ kernel is told them: its formulas with these numbers are SciPy's densities."""

import jax
import numpy as np
import pytest
from scipy import special, stats

import longhmm as lh
from longhmm.model.densities import MIXTURE, STUDENT

pytestmark = pytest.mark.usefixtures("double_precision")
VALUES = np.array([-7.0, -0.3, 0.0, 1.9, 40.0])


def test_numbers_of_students_t():
    params = {"df": np.array([3.0, 30.0]), "loc": np.array([0.5, -1.0]), "scale": np.array([2.0, 0.7])}
    lowering = lh.StudentT().lowering
    assert (lowering.kind, lowering.sufficient, lowering.rows_are_values) == (STUDENT, False, True)
    for state, (constant, mean, inverse, power) in enumerate(np.asarray(lowering.natural(params))):
        found = constant - power * np.log1p(inverse * (VALUES - mean) ** 2)
        expected = stats.t.logpdf(VALUES, *(params[name][state] for name in ("df", "loc", "scale")))
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_features_lie_one_after_the_other():
    pairs = {"df": [[3.0, 9.0]], "loc": [[1.0, 2.0]], "scale": [[0.5, 4.0]]}
    both = lh.StudentT(2).lowering.natural({name: np.array(value) for name, value in pairs.items()})
    for feature in range(2):
        one = {name: np.array(value)[:, feature] for name, value in pairs.items()}
        np.testing.assert_allclose(both[:, 4 * feature : 4 * feature + 4], lh.StudentT().lowering.natural(one))


def test_numbers_of_mixtures():
    params = {
        "weights": np.array([[0.2, 0.8], [0.5, 0.5]]),
        "means": np.array([[-1.0, 2.0], [0.0, 9.0]]),
        "scales": np.array([[0.5, 1.0], [3.0, 0.2]]),
    }
    lowering = lh.GaussianMixture(2).lowering
    assert (lowering.kind, lowering.sufficient) == (MIXTURE, False)
    for state, numbers in enumerate(np.asarray(lowering.natural(params)).reshape(2, 2, 3)):
        parts = [offset - 0.5 * ((VALUES - mean) * inverse) ** 2 for offset, mean, inverse in numbers]
        laws = zip(*(params[name][state] for name in ("weights", "means", "scales")), strict=True)
        expected = np.log(sum(weight * stats.norm.pdf(VALUES, mean, scale) for weight, mean, scale in laws))
        near = np.abs(VALUES) < 10  # farther out SciPy's densities are 0
        np.testing.assert_allclose(special.logsumexp(parts, axis=0)[near], expected[near], rtol=1e-10)
    slope = jax.jacobian(lambda at: lowering.natural({**params, "means": at}))(params["means"])
    assert np.isfinite(slope).all()
