"""Which model predicts best: held-out scores of several models on the same data, and how sure their order is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.predict import Score
from longhmm.run.sample import sample

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["n_states", "log_density", "mc_error", "per_observation", "difference", "difference_error"]


def compare(
    candidates: Mapping[str, HMM | Posterior] | Sequence[HMM | Posterior],
    data: Any = None,
    *,
    test: Any = None,
    held_out: float = 0.1,
    fit: Callable[[HMM, Sequences], Posterior] | None = None,
    draws: int = 100,
    blocks: int = 100,
) -> pd.DataFrame:
    """Rank models (or posteriors) by the log predictive density of data they were not fitted to.

    Args:
        candidates: models to fit, or posteriors that were fitted already (then give `test`, which they have not seen);
            by name, or in a list.
        data: training data, or, without `test`, all data, of which the last share `held_out` is kept for testing.
        test: held-out data, taken to begin afresh.
        fit: `fit(model, training_data)` returns a posterior; by default `sample` with its own defaults.
        draws: draws averaged over for each score.
        blocks: stretches of the test data over which differences are paired.

    Returns:
        One row per candidate, the best first: `n_states`; `log_density` of the test data and its Monte Carlo error
        `mc_error`; `per_observation`; `difference` from the best, and `difference_error`, its standard error from
        the spread of paired differences between stretches of the test data. A difference below twice its error is
        no reason to prefer the larger model.
    """
    import pandas as pd

    named = dict(candidates) if isinstance(candidates, Mapping) else _named(candidates)
    if not named:
        raise ModelError("candidates must hold at least one model or posterior, got none.")
    if data is None and (test is None or any(isinstance(each, HMM) for each in named.values())):
        raise ModelError("data must be given to fit models, and test= to compare posteriors; got neither.")
    training, after = None if data is None else open_data(data), None
    if test is not None:
        held = open_data(test)
    else:
        assert training is not None
        training, held, continues = training.split(held_out)
        after = training if continues else None
    scores: dict[str, Score] = {}
    sizes: dict[str, int] = {}
    for name, each in named.items():
        if isinstance(each, HMM):
            assert training is not None
            each = sample(each, training, verdict=False) if fit is None else fit(each, training)
        if not isinstance(each, Posterior):
            raise ModelError(f"candidates and fit must give models or posteriors, got {each!r}.")
        sizes[name] = each.model.n_states
        scores[name] = each.score(held, draws=draws, after=after, blocks=blocks)
    best = max(scores.values(), key=lambda score: score.log_density)
    rows = {}
    for name, found in sorted(scores.items(), key=lambda each: -each[1].log_density):
        numbers = (found.log_density, found.error, found.per_observation)
        rows[name] = (sizes[name], *numbers, *paired_difference(found.blocks, best.blocks))
    return pd.DataFrame.from_dict(rows, orient="index", columns=COLUMNS).rename_axis("model")


def paired_difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Sum of the differences of paired blocks, and its standard error from their spread."""
    if np.isneginf(one).any():
        return float("-inf"), float("nan")
    gaps = one - other
    return float(gaps.sum()), float(np.sqrt(len(gaps)) * gaps.std(ddof=1) if len(gaps) > 1 else np.nan)


def _named(candidates: Sequence[HMM | Posterior]) -> dict[str, HMM | Posterior]:
    found: dict[str, HMM | Posterior] = {}
    for each in candidates:
        states = getattr(getattr(each, "model", each), "n_states", 0)
        name = f"{states} state{'s' if states > 1 else ''}"
        count = sum(key == name or key.startswith(f"{name} (") for key in found)
        found[f"{name} ({count + 1})" if count else name] = each
    return found
