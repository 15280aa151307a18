"""A posterior at a glance: tables of parameters and of the levels of states, as text and for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import jax
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.preprocess import Preprocessing
from longhmm.inference.markov import stationary_law
from longhmm.model.hmm import HMM
from longhmm.model.support import unwrapped
from longhmm.posterior.diagnostics.convergence import convergence
from longhmm.posterior.draws import SAMPLE_DIMS, Draws, central, entry_table, in_float64

if TYPE_CHECKING:
    import pandas as pd

MOST_DRAWS = 1000
MOST_ROWS = 16  # states shown in a notebook


def summary_table(posterior: Draws, interval: float) -> pd.DataFrame:
    """See `Posterior.summary`."""
    import pandas as pd

    draws, low, high = posterior.draws, (1 - interval) / 2, (1 + interval) / 2
    columns = {
        "mean": draws.mean(SAMPLE_DIMS),
        "sd": draws.std(SAMPLE_DIMS, ddof=1),
        f"{100 * low:.3g}%": draws.quantile(low, SAMPLE_DIMS),
        f"{100 * high:.3g}%": draws.quantile(high, SAMPLE_DIMS),
        **convergence(draws),
    }
    return pd.DataFrame({name: entry_table(each) for name, each in columns.items()}).rename_axis("parameter")


def levels(posterior: Draws, *, interval: float = 0.9, preprocessing: Preprocessing | None = None) -> pd.DataFrame:
    """One row per state: `level` at the posterior mean, and the ends of its central interval over the draws.

    Args:
        preprocessing: what was done to the recording; levels are then given in the units of its file.
    """
    import pandas as pd

    undo = (preprocessing or Preprocessing()).in_file_units
    lower, upper = central(level_draws(posterior), interval)
    mean = in_float64(
        _locations, posterior.model, {name: value[None] for name, value in posterior.mean_params().items()}
    )
    table = {"level": mean[0], "level_lower": lower, "level_upper": upper}
    states = pd.RangeIndex(posterior.model.n_states, name="state")
    return pd.DataFrame({name: undo(each) for name, each in table.items()}, index=states)


def level_draws(posterior: Draws, draws: int = MOST_DRAWS) -> np.ndarray:
    """`(draws, K)`, first component of the emission's location in each state, for draws of the parameters."""
    found: np.ndarray = in_float64(_locations, posterior.model, posterior.stacked(draws))
    return unwrapped(found, (0,)) if posterior.model.emission.support is constraints.circular else found


@jax.jit
def _locations(model: HMM, params: dict[str, jax.Array]) -> jax.Array:
    return jax.vmap(model.emission.location)(params)


def feature_levels(posterior: Draws) -> np.ndarray:
    """`(K, D)` at the posterior mean; `(K, 1)` where only the level of the first feature is known."""
    return np.asarray(in_float64(_means, posterior.model, posterior.mean_params()), np.float64)


@jax.jit
def _means(model: HMM, params: dict[str, jax.Array]) -> jax.Array:
    return model.emission.means(params)


def headline(posterior: Draws) -> str:
    plural = "s" if posterior.n_chains > 1 else ""
    return f"{posterior.n_chains} chain{plural} x {posterior.n_draws:,} draws"


def as_text(posterior: Draws, verdict: str | None) -> str:
    parts = [headline(posterior), repr(posterior.model)]
    sampler = posterior.settings.get("sampler")
    if isinstance(sampler, str):
        parts.append(sampler)
    return f"Posterior({', '.join([*parts, verdict or 'not yet diagnosed'])})"


def as_html(posterior: Draws, verdict: str | None) -> str:
    """Headline, verdict, notes, and one row per state. Every text is escaped: a loaded run may come from anywhere."""
    import pandas as pd

    said = verdict or "not yet diagnosed: call diagnose(data)"
    lines = [
        "<div class='longhmm-posterior'>",
        f"<p><b>Posterior</b>: {escape(headline(posterior))}, {escape(repr(posterior.model))}<br>{escape(said)}</p>",
    ]
    if posterior.notes:
        lines.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in posterior.notes) + "</ul>")
    table = pd.DataFrame(_columns(posterior)).rename_axis("state")
    lines.append(table.head(MOST_ROWS).to_html(border=0))
    if len(table) > MOST_ROWS:
        lines.append(f"<p>and {len(table) - MOST_ROWS} more states</p>")
    return "\n".join([*lines, "</div>"])


def _columns(posterior: Draws) -> dict[str, list[str]]:
    """Posterior mean and sd of what has one number per state, and of the first feature of vectors."""
    transition = posterior.transitions
    columns = {
        "share of time": stationary_law(transition),
        "stays with probability": np.diagonal(transition, axis1=1, axis2=2),
    }
    for name, values in posterior.draws.items():
        if name != "transition" and values.dims[2] == "state" and values.ndim <= 4:
            flat = np.asarray(values).reshape(-1, values.shape[2], int(np.prod(values.shape[3:], dtype=int)))
            label = str(name) if flat.shape[2] == 1 else f"{name} (first of {flat.shape[2]})"
            columns[label] = flat[:, :, 0]
    return {
        name: [f"{mean:.4g} ± {sd:.1g}" for mean, sd in zip(each.mean(axis=0), each.std(axis=0), strict=True)]
        for name, each in columns.items()
    }
