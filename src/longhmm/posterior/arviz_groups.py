"""Draws as ArviZ wants them: with the data also log likelihoods, priors and simulated data, for `az.loo`."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from longhmm.backends.stream import Stretches
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError, check_whole
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.model.parameters import draw_prior
from longhmm.model.simulate import simulate
from longhmm.posterior.draws import Draws, evenly_spaced, labelled, parameter_axes

OBSERVED = "y"  # what the observations are called in groups of data


class Exporting(Draws):
    """Draws that other libraries can take over."""

    def to_arviz(self, data: Any = None, *, draws: int = 50, blocks: int = 100, rows: int = 1000, seed: int = 0) -> Any:
        """The draws in ArviZ's container: InferenceData, or from ArviZ 1 on an xarray DataTree.

        Without data it holds the groups `posterior`, `unconstrained_posterior` and `sample_stats` with all draws. With
        the data every group has `draws` draws of each chain, evenly spaced, and there are also `log_likelihood`, the
        logarithm of the density of each sequence (of each block given all rows before it, where there is one sequence
        or more than `blocks`), one pass over the data for each draw; `observed_data` with the first `rows` rows;
        `posterior_predictive`, as many rows simulated at each draw; and, where priors are proper, `prior` and
        `prior_predictive`. `az.loo(container)` and `az.plot_ppc(container)` then work.

        Leaving out a sequence is exact; leaving out a block is what `az.loo` makes of its conditional density, which
        forgets that later rows say something of it: take blocks long beside the memory of the chain.

        Args:
            data: the data of the run.
            draws: of each chain.
            blocks: at most so many parts of the data have a log likelihood of their own.
            rows: of the observed and simulated data.
            seed: of priors and simulated data.
        """
        groups = {"posterior": self.draws, "sample_stats": self.sample_stats}
        groups["unconstrained_posterior"] = self.unconstrained
        if data is not None:
            check_whole("draws", draws, 1)
            kept = evenly_spaced(self.n_draws, int(draws))
            groups = {
                name: each.isel(draw=kept).assign_coords(draw=np.arange(len(kept))) for name, each in groups.items()
            }
            at = [[self.params_at(chain, int(draw)) for draw in kept] for chain in range(self.n_chains)]
            groups |= self._data_groups(self.model.opened(data), at, blocks, rows, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its future
            az: Any = import_module("arviz")  # which is slow to load
        before_one = int(az.__version__.split(".")[0]) < 1
        return az.InferenceData(**groups) if before_one else xr.DataTree.from_dict(groups)

    def _data_groups(
        self, data: Sequences, at: list[list[Any]], blocks: int, rows: int, seed: int
    ) -> dict[str, xr.Dataset]:
        model = self.model
        stretches = Stretches(unfold(model, at[0][0])[1], data, blocks)
        part = "block"
        if 1 < data.n_sequences <= blocks:
            stretches.edges, part = data.offsets, "sequence"
        logs = np.array([[stretches.log_likelihoods(unfold(model, each)[2]) for each in chain] for chain in at])
        found = {"log_likelihood": labelled({OBSERVED: logs}, {OBSERVED: (part,)})}
        count = min(int(rows), data.length)
        first = data.rows(0, count)
        seen = np.where(first.observed, first.values, np.nan)
        seen = seen[:, 0] if data.dim == 1 else seen
        axes = {OBSERVED: ("row",) if data.dim == 1 else ("row", "feature")}
        found["observed_data"] = labelled({OBSERVED: seen}, axes, ())
        if model.transitions.varies or model.formulas:
            return found  # data that follow covariates are not simulated here

        def simulated(params: Any, number: int) -> np.ndarray:
            values = np.asarray(simulate(model, params, count, seed=seed + number)[1], np.float64)
            return values[:, 0] if data.dim == 1 else values

        several = [[simulated(each, i + len(chain) * j) for i, each in enumerate(chain)] for j, chain in enumerate(at)]
        found["posterior_predictive"] = labelled({OBSERVED: np.array(several)}, axes)
        try:
            drawn = [prior_params(model, jax.random.key(seed + number)) for number in range(len(at[0]))]
        except ModelError:
            return found  # a prior that is flat has no draws
        named = parameter_axes(model)
        own = {name: np.array([[each[name] for each in drawn]]) for name in named if name in drawn[0]}
        found["prior"] = labelled(own, named)
        ahead = np.array([[simulated(each, 1_000_003 + number) for number, each in enumerate(drawn)]])
        found["prior_predictive"] = labelled({OBSERVED: ahead}, axes)
        return found


def prior_params(model: HMM, key: jax.Array) -> dict[str, np.ndarray]:
    """Natural parameters drawn from the prior; rows of `transition` are Dirichlet, fixed rows stay."""
    moves, table = model.transitions, model.emission.parameters(model.n_states)
    if not moves.dirichlet:
        raise ModelError(f"priors are drawn from where rows of the transition matrix are Dirichlet, got {moves!r}.")
    *keys, last = jax.random.split(key, len(table) + 1)
    with jax.enable_x64(True):
        drawn = zip(sorted(table), keys, strict=True)
        params = {name: np.asarray(draw_prior(each, table[name])) for name, each in drawn}
        shape = jnp.where(moves.allowed, jnp.asarray(moves.concentration), 1.0)
        gammas = jnp.where(moves.allowed, jax.random.gamma(last, shape), 0.0)
        rows = np.array(gammas / gammas.sum(axis=1, keepdims=True))
    for row, known in moves.fixed_rows.items():
        rows[row] = known
    return model.validate({**params, "transition": rows})
