"""The library as a scikit-learn estimator, for pipelines and people who know `fit` and `predict`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import Sequences, open_data
from longhmm.model import registry
from longhmm.model.emissions import Emission
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.run.sample import sample

try:
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("longhmm.sklearn needs scikit-learn; install it with: pip install scikit-learn") from error

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


class BayesianHMM(BaseEstimator):
    """A hidden Markov model whose parameters are drawn from their posterior.

    Rows of `X` are consecutive observations; NaN marks missing values; `lengths` cuts `X` into sequences. As rows
    depend on their neighbours, predictions for part of `X`, or for its rows in another order, are other predictions.

    Args:
        n_states: number of hidden states.
        emission: the name of a family, such as "gaussian", "student-t" or "poisson" (the command line takes the same),
            or an `Emission` with priors of your own.
        transition_prior, transitions: as `HMM` takes them; where a model follows covariates, they go with `X` as
            `covariates`, a table or an array of as many rows.
        sampler: as `sample` takes it; None chooses.
        chains, draws: number of chains, and draws kept of each.
        predict_draws: draws over which `predict_proba` and `score` average.
        time_limit: seconds after which drawing stops.
        progress: show a bar.
        random_state: seed, or NumPy's generator.

    Attributes:
        posterior_: the `Posterior`, with draws, summary, verdict and all further answers.
        transition_: `(K, K)`, posterior mean of the transition matrix.
        n_features_in_: number of features.

    Example:
        >>> import numpy as np
        >>> from longhmm.sklearn import BayesianHMM
        >>> BayesianHMM(n_states=3, emission="poisson")
        BayesianHMM(emission='poisson', n_states=3)
    """

    def __init__(
        self,
        n_states: int = 2,
        emission: str | Emission = "gaussian",
        *,
        transition_prior: Any = 1.0,
        transitions: Any = None,
        sampler: Any = None,
        chains: int = 4,
        draws: int = 1000,
        predict_draws: int = 20,
        time_limit: float | None = None,
        progress: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.n_states, self.emission = n_states, emission
        self.transition_prior, self.transitions = transition_prior, transitions
        self.sampler, self.chains, self.draws, self.predict_draws = sampler, chains, draws, predict_draws
        self.time_limit, self.progress, self.random_state = time_limit, progress, random_state

    def fit(self, X: Any, y: Any = None, *, lengths: Any = None, covariates: Any = None) -> BayesianHMM:
        """Draw from the posterior given `X`, `(n_samples, n_features)`; `y` is ignored."""
        sequences = self._sequences(X, lengths, covariates, reset=True)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        emission = self.emission
        if not isinstance(emission, Emission):
            emission = registry.emission_from_name(emission, sequences)
        model = HMM(self.n_states, emission, transitions=self.transitions, transition_prior=self.transition_prior)
        how = {name: getattr(self, name) for name in ("sampler", "chains", "draws", "time_limit", "progress")}
        self.posterior_: Posterior = sample(model, sequences, seed=seed, **how)
        self.transition_ = self.posterior_.mean_params()["transition"]
        verdict = self.posterior_.verdict or self.posterior_.diagnose()  # without progress, of the chains alone
        if verdict.kind not in ("trust", "chains agree, rest unchecked"):
            warnings.warn(f"The verdict on this fit is '{verdict}'", ConvergenceWarning, stacklevel=2)
        return self

    def predict(self, X: Any, *, lengths: Any = None, covariates: Any = None) -> np.ndarray:
        """`(n_samples,)`, the most probable path of states at the posterior mean."""
        data = self._sequences(X, lengths, covariates)
        return self.posterior_.decode(data).astype(np.int64)

    def predict_proba(self, X: Any, *, lengths: Any = None, covariates: Any = None) -> np.ndarray:
        """`(n_samples, n_states)`, the probability of every state given all of `X`, averaged over draws."""
        data = self._sequences(X, lengths, covariates)
        return self.posterior_.state_probabilities(data, draws=self.predict_draws)

    def score(self, X: Any, y: Any = None, *, lengths: Any = None, covariates: Any = None) -> float:
        """Log predictive density of `X` per observation, averaged over draws; larger is better."""
        data = self._sequences(X, lengths, covariates)
        return self.posterior_.score(data, draws=self.predict_draws).per_observation

    def sample(
        self, n_samples: int = 1, *, random_state: Any = None, covariates: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`X (n_samples, n_features)` and `states (n_samples,)`, simulated with one draw of the parameters."""
        check_is_fitted(self)
        rng = check_random_state(random_state)
        chain, draw = rng.randint(self.posterior_.n_chains), rng.randint(self.posterior_.n_draws)
        params = self.posterior_.params_at(int(chain), int(draw))
        seed = int(rng.randint(np.iinfo(np.int32).max))
        states, values = simulate(self.posterior_.model, params, n_samples, seed=seed, covariates=covariates)
        return values, states

    def _sequences(self, X: Any, lengths: Any, covariates: Any, *, reset: bool = False) -> Sequences:
        if not reset:
            check_is_fitted(self)
        kinds, least = [np.float64, np.float32, np.int64, np.int32], 2 if reset else 1
        how: dict[str, Any] = {"dtype": kinds, "ensure_all_finite": "allow-nan", "ensure_min_samples": least}
        return open_data(validate_data(self, X, reset=reset, **how), lengths=lengths, covariates=covariates)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
