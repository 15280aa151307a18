"""Whether the data are as noisy as the model believes: the sandwich covariance against the posterior's.

If the model is right, the information in the curvature of the log likelihood and the variance of its score agree. If
the noise is coloured, or the states are not Markov, the scores of neighbouring observations are correlated, the score
varies more than the curvature says, and the posterior is too narrow by the ratio reported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.inference.markov import mixing_time
from longhmm.model.hmm import HMM
from longhmm.target.buffer_report import cell_scores

SHORTEST_RUN, MIXING_TIMES = 128, 8  # a cell is this many times as long as the chain's memory
FEWEST_CELLS = 30  # cells are shortened rather than let there be fewer


@dataclass(frozen=True)
class Sandwich:
    """Sandwich standard deviations relative to the posterior's.

    Attributes:
        ratio: `(Q,)`, by entry of the natural parameters; 1 is right.
        error: `(Q,)`, standard error of the ratio.
        core_length: length of the stretches whose scores were compared.
        cells_used: how many of them.
    """

    ratio: np.ndarray
    error: np.ndarray
    core_length: int
    cells_used: int


def sandwich(
    model: HMM,
    params: Mapping[str, Any],
    directions: np.ndarray,
    sd: np.ndarray,
    sequences: Sequences,
    *,
    cells: int = 400,
    seed: int = 0,
) -> Sandwich:
    """Compare the variance of the score, from stretches longer than the chain's memory, with its inverse curvature.

    With J the variance of the score and v the posterior covariance of the coordinates with a parameter, its sandwich
    variance is `v' J v`: the delta method, in which the posterior covariance stands for the inverse information.

    Args:
        params: natural parameters at the mode or at the posterior mean.
        directions: `(P, Q)` posterior covariance of the coordinates with every entry.
        sd: `(Q,)` posterior standard deviation of every entry.
        cells: how many stretches to look at.
    """
    memory = mixing_time(np.asarray(params["transition"]), cap=1e6)
    wanted = max(SHORTEST_RUN, int(np.ceil(MIXING_TIMES * memory)))
    core_length = max(1, min(wanted, sequences.length // FEWEST_CELLS))
    scores, n_cells = cell_scores(model, params, sequences, core_length, cells=cells, seed=seed)
    moves = scores @ directions / sd  # what one cell contributes to each estimate, in posterior sd
    moves = moves - moves.mean(axis=0)
    variance = n_cells * moves.var(axis=0, ddof=1)
    # Standard error of a variance of heavy-tailed numbers, from their fourth moment.
    relative = np.sqrt(np.maximum((moves**4).mean(axis=0) / (moves**2).mean(axis=0) ** 2 - 1.0, 0.0) / len(moves))
    ratio = np.sqrt(variance)
    return Sandwich(ratio, 0.5 * ratio * relative, core_length, len(scores))
