"""Expectation maximisation: the nearest mode of the posterior (or of the likelihood), for any emission.

Every step is one pass over all data. For exponential families the M step is exact; otherwise it is one Newton step on
Q (Lange 1995, the "EM gradient" algorithm), which has the same fixed points and the same rate near them. A step that
would lower the log posterior is halved until it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from longhmm.errors import ImpossibleObservationError, ModelError
from longhmm.kernels.full_pass import Progress
from longhmm.samplers.expected_statistics import Expected, expect, sums_suffice
from longhmm.samplers.full_data import FullData
from longhmm.samplers.maximisation import between, log_prior, maximise

HALVINGS = 30
# Passes agree to rounding only: a fall of the log posterior by less than this share of it is none.
ROUNDING = 1e-12


class EMState(NamedTuple):
    """Parameters with what one pass found at them.

    Attributes:
        params: natural parameters, `initial` only where it was given and differs from the model's own.
        expected: the statistics of the pass at `params`.
        log_posterior: `log p(y | params)`, plus the log prior density of natural parameters if there is a prior.
        by_sums: whether sufficient statistics are used.
    """

    params: dict[str, np.ndarray]
    expected: Expected
    log_posterior: float
    by_sums: bool


class EMInfo(NamedTuple):
    """What a step achieved: the values after it, the gain, and how often the step was halved."""

    log_likelihood: float
    log_posterior: float
    gain: float
    halvings: int


@dataclass(frozen=True)
class ExpectationMaximisation:
    """EM under the contract of all samplers; its minibatch is `FullData`.

    Args:
        prior: climb the posterior density of natural parameters; False climbs the likelihood.
        progress: called with the number of rows after every block.
    """

    prior: bool = True
    progress: Progress | None = None
    compiled: ClassVar[bool] = False

    def init(self, params: Mapping[str, Any], minibatch: FullData) -> EMState:
        """Run the first pass at given parameters."""
        complete = minibatch.model.validate(params)
        given = minibatch.model.given_initial(complete)
        own = complete.pop("initial")
        start = complete if given is None else {**complete, "initial": own}
        return self._at(start, minibatch, sums_suffice(minibatch))

    def step(self, key: jax.Array | None, state: EMState, minibatch: FullData) -> tuple[EMState, EMInfo]:
        """Move to better parameters; the random key is not used."""
        model = minibatch.model
        given = {name: value for name, value in state.params.items() if name == "initial"}
        moves_initial = isinstance(model.initial, str) and not given
        proposal = maximise(model, state.params, state.expected, prior=self.prior, moves_initial=moves_initial)
        least = state.log_posterior - ROUNDING * max(1.0, abs(state.log_posterior))
        for halvings in range(HALVINGS):
            params = {**between(model, state.params, proposal, 0.5**halvings), **given}
            try:
                new = self._at(params, minibatch, state.by_sums)
            except (ModelError, ImpossibleObservationError):
                continue  # the step left the region in which the data are possible
            if new.log_posterior >= least:
                gain = new.log_posterior - state.log_posterior
                return new, EMInfo(new.expected.log_likelihood, new.log_posterior, gain, halvings)
        return state, EMInfo(state.expected.log_likelihood, state.log_posterior, 0.0, HALVINGS)

    def _at(self, params: dict[str, np.ndarray], data: FullData, by_sums: bool) -> EMState:
        expected = expect(data, params, by_sums=by_sums, progress=self.progress)
        value = expected.log_likelihood + (log_prior(data.model, params) if self.prior else 0.0)
        return EMState(params, expected, value, by_sums)
