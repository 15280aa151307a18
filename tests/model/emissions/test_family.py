"""What named families share: default priors wait for the data, and say so where they are asked too early."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm import Gaussian, Poisson
from longhmm.errors import ModelError
from model.configurations import prior_draw

pytestmark = pytest.mark.usefixtures("double_precision")


def test_unresolved_priors_are_refused_with_the_remedy() -> None:
    with pytest.raises(ModelError, match="resolve the model on the data first"):
        Poisson().log_prior({"rate": np.ones(2)})
    with pytest.raises(ModelError, match="resolve the model on the data first"):
        prior_draw(Poisson(), jax.random.key(0), 2)
    with pytest.raises(ModelError, match=r"has 3 feature\(s\) per observation, but .* describes 2"):
        lh.HMM(2, Gaussian(2)).resolve(np.zeros((5, 3)))
