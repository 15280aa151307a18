"""Exact posteriors of data in memory by Gibbs sampling, against which others are held."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.run.driver import Driver
from longhmm.samplers.gibbs import Gibbs
from longhmm.target.coordinates import unconstrain
from longhmm_reproduction.chains import Params

SAME_MODE = 20.0  # in log likelihood: chains of one mode differ by some units, other modes by hundreds


class Exact(NamedTuple):
    """Draws by name, `(chain, draw, *shape)`, log likelihoods `(chain, draw)`, seconds (compiling included), rows."""

    draws: Params
    log_likelihood: np.ndarray
    seconds: float
    touched: float

    def best(self) -> Params:
        """The draws of those chains that found the mode of highest likelihood."""
        heights = self.log_likelihood.mean(axis=1)
        return {name: value[heights > heights.max() - SAME_MODE] for name, value in self.draws.items()}


def gibbs(model: HMM, sequences: Sequences, starts: Sequence[Params], *, warmup: int, sweeps: int, seed: int) -> Exact:
    """Chains of Gibbs sweeps from natural parameters, side by side."""
    began = time.perf_counter()
    sampler = Gibbs()
    with jax.enable_x64(True):
        target = sampler.estimator(None, None).bind(model, sequences, starts[0])
    driver = Driver(sampler, target, seed)
    run = driver.start([unconstrain(model, start) for start in starts])
    driver.advance(run, warmup, 1, record=False)
    driver.advance(run, sweeps, 1)
    recorded, stats = run.joined()
    draws = natural_draws(model, recorded)
    seconds = time.perf_counter() - began
    return Exact(draws, stats["log_likelihood"], seconds, float(sequences.length * (warmup + sweeps)))


def natural_draws(model: HMM, coordinates: Mapping[str, Any]) -> Params:
    """Natural parameters of many draws of coordinates, `(chain, draw, ...)`, in one call."""
    with jax.enable_x64(True):
        wide = {name: np.asarray(value, np.float64) for name, value in coordinates.items()}
        return jax.tree.map(np.asarray, _constrain(model, wide))


@partial(jax.jit, static_argnums=0)
def _constrain(model: HMM, coordinates: Mapping[str, jax.Array]) -> Mapping[str, jax.Array]:
    return jax.vmap(jax.vmap(model.constrain))(coordinates)
