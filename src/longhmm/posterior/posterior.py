"""The result of a run: labelled draws, and the answers that are computed from them."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.serialise import model_to_config
from longhmm.posterior import convergence, show, store
from longhmm.posterior.decode import decode
from longhmm.posterior.diagnostics import Verdict, verdict
from longhmm.posterior.draws import label_chains, mean_of
from longhmm.posterior.dwell import dwell
from longhmm.posterior.events import events
from longhmm.posterior.extend import extend
from longhmm.posterior.forecast import Forecast, forecast
from longhmm.posterior.labels import labelled, parameter_dims
from longhmm.posterior.origin import Origin
from longhmm.posterior.probabilities import state_probabilities
from longhmm.posterior.score import PredictiveScore, Score, predictive_log_prob, score
from longhmm.run.chains import Chains
from longhmm.version import __version__

if TYPE_CHECKING:
    import pandas as pd


class Posterior:
    """Draws from the posterior of a hidden Markov model, and what follows from them.

    Attributes:
        model: the model, its default priors resolved to numbers.
        draws: natural parameters, `(chain, draw, state, ...)`; `transition` is `(chain, draw, state, to_state)`.
            `initial` is given rather than inferred, and constants do not vary: neither is among the draws.
        unconstrained: the same draws in the coordinates in which they were made.
        sample_stats: one number per draw, such as "log_likelihood".
        settings: how the draws came about, as plain values.
        notes: sentences about the run.
        mode: natural parameters at the mode, or None.
        information: observed information at the mode, unconstrained names in sorted order, or None.
        verdict: what the checks say, or None before `diagnose`.
        origin: what the run needs to go on, or None after loading.
    """

    def __init__(
        self,
        model: HMM,
        draws: xr.Dataset,
        unconstrained: xr.Dataset,
        sample_stats: xr.Dataset,
        *,
        settings: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
        mode: Mapping[str, np.ndarray] | None = None,
        information: np.ndarray | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        self.model = model
        self.draws, self.unconstrained, self.sample_stats = draws, unconstrained, sample_stats
        self.settings: dict[str, Any] = dict(settings or {})
        self.notes = tuple(notes)
        self.mode = None if mode is None else dict(mode)
        self.information = information
        self.verdict = verdict
        self.origin: Origin | None = None

    @classmethod
    def from_chains(cls, model: HMM, chains: Chains, data: Sequences | Mapping[str, Any] | None = None) -> Posterior:
        """Turn what a run left behind into a posterior: natural parameters, states numbered in one order.

        `data` is the data of the run, or a description of them with the keys of `describe`.
        """
        if isinstance(data, Sequences):
            model = model.resolve(data)
        described = describe(data) if isinstance(data, Sequences) else dict(data or {})
        # States that were known in places have numbers that mean something.
        found = label_chains(model, chains, keep_order=bool(described.get("has_states", False)))
        settings = copy.deepcopy(dict(chains.settings))
        if described:
            settings.setdefault("data", described)
        settings["state_order"] = found.orders
        return cls(
            model,
            found.draws,
            found.unconstrained,
            found.sample_stats,
            settings=settings,
            notes=chains.notes,
            mode=found.mode,
            information=found.information,
        )

    def extend(self, draws: int, data: Any = None, **options: Any) -> Posterior:
        """Go on from where the run stopped, with `draws` more draws of each chain: see `extend.extend`."""
        return extend(self, draws, data, **options)

    def take(self, other: Posterior) -> None:
        """Become what `other` is."""
        self.__dict__.update(other.__dict__)

    # Draws ------------------------------------------------------------------------------------------------------

    @property
    def n_chains(self) -> int:
        return int(self.draws.sizes["chain"])

    @property
    def n_draws(self) -> int:
        """Draws per chain."""
        return int(self.draws.sizes["draw"])

    def params_at(self, chain: int, draw: int) -> dict[str, np.ndarray]:
        """Complete natural parameters of one draw, constants and the initial law included."""
        if not (-self.n_chains <= chain < self.n_chains and -self.n_draws <= draw < self.n_draws):
            raise ModelError(
                f"chain and draw must be below {self.n_chains} and {self.n_draws}, got chain {chain} and draw {draw}."
            )
        picked = self.draws.isel(chain=chain, draw=draw)
        return self.model.validate({str(name): np.asarray(value) for name, value in picked.items()})

    def iterate(self, n: int | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Parameters of `n` draws, evenly spaced over all chains (all draws if None)."""
        for chain, draw in self.thinned(n):
            yield self.params_at(chain, draw)

    def thinned(self, n: int | None = None) -> list[tuple[int, int]]:
        """Chain and draw of `n` draws, evenly spaced over all chains."""
        total = self.n_chains * self.n_draws
        if n is not None and n < 1:
            raise ModelError(f"the number of draws must be at least 1, got {n!r}.")
        count = total if n is None else min(int(n), total)
        # The middle of each of `count` equal stretches.
        return [divmod(int((2 * index + 1) * total // (2 * count)), self.n_draws) for index in range(count)]

    def mean_params(self) -> dict[str, np.ndarray]:
        """Posterior mean as complete natural parameters."""
        natural = {str(name): np.asarray(value) for name, value in self.draws.items()}
        return mean_of(self.model, natural, axes=(0, 1))

    def summary(self, *, interval: float = 0.9) -> pd.DataFrame:
        """One row per entry of every parameter: mean, sd, central interval, R-hat, bulk and tail ESS."""
        return convergence.summary_table(self.draws, interval)

    def to_arviz(self) -> Any:
        """The draws in ArviZ's container: InferenceData, or from ArviZ 1 on an xarray DataTree."""
        groups = {"posterior": self.draws, "sample_stats": self.sample_stats}
        return convergence.to_arviz({**groups, "unconstrained_posterior": self.unconstrained})

    # Answers ----------------------------------------------------------------------------------------------------

    def decode(self, data: Any, *, draws: int | None = None, client: Any = None) -> np.ndarray:
        """The most probable path of states, at the posterior mean or per draw: see `decode.decode`."""
        return decode(self, data, draws=draws, client=client)

    def state_probabilities(
        self, data: Any, *, draws: int = 20, causal: bool = False, out: Any = None, client: Any = None
    ) -> np.ndarray:
        """`P(x_t = k | y)` averaged over draws: see `probabilities.state_probabilities`."""
        return state_probabilities(self, data, draws=draws, causal=causal, out=out, client=client)

    def score(self, data: Any, *, draws: int = 100, after: Any = None, blocks: int = 100, client: Any = None) -> Score:
        """Log predictive density of held-out data: see `score.score`."""
        return score(self, data, draws=draws, after=after, blocks=blocks, client=client)

    def predictive_log_prob(self, data: Any, *, steps: int = 10, draws: int = 10) -> PredictiveScore:
        """Mean log density of observations `steps` ahead: see `score.predictive_log_prob`."""
        return predictive_log_prob(self.model, list(self.iterate(draws)), data, steps=steps)

    def forecast(self, data: Any, steps: int, **options: Any) -> Forecast:
        """States and observations after the end of the data: see `forecast.forecast`."""
        return forecast(self, data, steps, **options)

    def events(
        self, data: Any, *, rate: float | None = None, path: np.ndarray | None = None, **options: Any
    ) -> pd.DataFrame:
        """The decoded path as a table of events: see `events.events`."""
        return events(self, data, rate=rate, path=path, **options)

    def dwell(self, *, rate: float | None = None, interval: float = 0.9, data: Any = None) -> pd.DataFrame:
        """How long states last and how often they occur: see `dwell.dwell`."""
        return dwell(self, rate=rate, interval=interval, data=data)

    def diagnose(self, data: Any = None, **options: Any) -> Verdict:
        """Run the checks (see `verdict`) and keep what they say; without data only the chains can be judged."""
        self.verdict = verdict(self, data, **options)
        return self.verdict

    def report(self, data: Any = None, path: str | os.PathLike[str] = "report.html", **options: Any) -> Path:
        """Write a page about this posterior, one HTML file that carries all it shows: see `report.write.report`."""
        from longhmm.report.page import report

        return report(self, data, path, **options)

    # Storage ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to the directory `path`, all or nothing: Zarr arrays and JSON, no pickle."""
        try:
            config: dict[str, Any] | None = model_to_config(self.model)
        except ModelError:
            config = None  # a user's own code: load(path, model=...) takes it from there
        groups = {"draws": self.draws, "unconstrained": self.unconstrained, "sample_stats": self.sample_stats}
        if self.mode is not None:
            groups["mode"] = labelled(
                {str(name): self.mode[str(name)] for name in self.draws}, parameter_dims(self.model), ()
            )
        if self.information is not None:
            groups["information"] = xr.Dataset({"information": (("row", "column"), self.information)})
        document = {
            "longhmm": __version__,
            "groups": list(groups),
            "model": config,
            "model_text": repr(self.model),
            "settings": self.settings,
            "notes": list(self.notes),
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
        }
        store.write_run(path, document, groups)

    def __repr__(self) -> str:
        return show.as_text(self)

    def _repr_html_(self) -> str:
        return show.as_html(self)


def describe(sequences: Sequences) -> dict[str, Any]:
    """What a run remembers of its data: plain values, never the data themselves."""
    return {
        "name": sequences.name,
        "length": sequences.length,
        "n_sequences": sequences.n_sequences,
        "dim": sequences.dim,
        "dtype": str(sequences.dtype),
        "has_states": sequences.has_states,
    }
