"""The exact posterior of data in memory as an estimator: for samplers that need values, and thousands of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from longhmm.data.sequences import Sequences
from longhmm.gradients.coordinates import add, prior_gradient, scale
from longhmm.gradients.estimators import GradientEstimate
from longhmm.kernels.resident import ResidentPosterior
from longhmm.model.hmm import HMM


@dataclass(frozen=True)
class ResidentData:
    """The exact log posterior and its gradient from one compiled pass over everything.

    Args:
        single: run the recursions in single precision (sums stay double): half the memory, six digits.
    """

    single: bool = False

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundResidentData:
        initial = model.given_initial(model.validate(params))
        kind = "float32" if self.single else "float64"
        return BoundResidentData(ResidentPosterior(model, sequences, kind, initial))


@partial(jax.tree_util.register_dataclass, data_fields=("posterior",), meta_fields=())
@dataclass(frozen=True, eq=False)
class BoundResidentData:
    """The posterior of one model on one data set; under `jax.enable_x64(True)` it may enter compiled code."""

    posterior: ResidentPosterior

    def draw(self, key: jax.Array) -> None:
        """Nothing: all data are used, and the posterior holds them."""

    def estimate(
        self, coordinates: Mapping[str, jax.Array], minibatch: None, *, prior: bool = True, per_window: bool = False
    ) -> GradientEstimate:
        """The exact gradient of the log posterior, or of the log likelihood."""
        _, gradient = self.posterior.value_and_gradient(coordinates)
        if not prior:
            with jax.enable_x64(True):
                gradient = add(gradient, scale(-1.0, prior_gradient(self.posterior.model, coordinates)))
        return GradientEstimate(gradient, None)
