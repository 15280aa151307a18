"""Posteriors that are known in closed form, dressed up as runs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from longhmm import Gaussian
from longhmm.data.sequences import Sequences, open_data
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.posterior import Posterior
from longhmm.run.chains import Chains


def unconstrained(model: HMM, natural: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Natural draws `(chain, draw, ...)` to coordinates."""
    lead = natural["transition"].shape[:2]
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in natural.items()}
    with jax.enable_x64(True):
        found = jax.vmap(model.unconstrain)({name: jnp.asarray(value) for name, value in flat.items()})
        return {name: np.asarray(value).reshape(*lead, *value.shape[1:]) for name, value in found.items()}


def chains_of(model: HMM, natural: dict[str, np.ndarray], **fields) -> Chains:
    lead = natural["transition"].shape[:2]
    given = {
        "stats": {"log_likelihood": np.random.default_rng(5).normal(size=lead), "finite": np.ones(lead, bool)},
        "settings": {"sampler": "closed form", "step_size": 0.1, "windows": {"count": 10}},
        "information": None,
        "mode": None,
        "notes": (),
        **fields,
    }
    return Chains(coordinates=unconstrained(model, natural), **given)


def gaussian_model(n_states: int = 2, **options) -> HMM:
    """Unit variance, means unknown: conjugate where states are known."""
    return HMM(n_states, Gaussian(sd=1.0, mean=dist.Normal(0.0, 10.0)), **options)


class Known(NamedTuple):
    """A model, data whose states are all known, and the closed form of its posterior."""

    model: HMM
    sequences: Sequences
    counts: np.ndarray  # row i of the transition matrix is Dirichlet(counts[i])
    mean: np.ndarray  # mean of state k is normal with this mean
    sd: np.ndarray  # and this standard deviation

    def draw(self, chains: int = 4, draws: int = 500, seed: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        rows = [rng.dirichlet(row, size=(chains, draws)) for row in self.counts]
        means = self.mean + self.sd * rng.normal(size=(chains, draws, len(self.mean)))
        return {"transition": np.stack(rows, axis=2), "mean": means}

    def posterior(self, natural: dict[str, np.ndarray] | None = None, **fields) -> Posterior:
        return Posterior.from_chains(
            self.model, chains_of(self.model, self.draw() if natural is None else natural, **fields), self.sequences
        )


def known_states(length: int = 1500, seed: int = 3) -> Known:
    model = gaussian_model()
    truth = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "mean": np.array([-1.0, 2.0])}
    states, values = simulate(model, truth, length, seed=seed)
    counts = np.ones((2, 2))
    np.add.at(counts, (states[:-1], states[1:]), 1)
    visits = np.bincount(states, minlength=2)
    precision = visits + 1 / 10.0**2
    sums = np.bincount(states, values[:, 0].astype(np.float64), minlength=2)
    return Known(model, open_data(values, states=states), counts, sums / precision, 1 / np.sqrt(precision))


def distorted(known: Known, shift: float = 0.0, width: float = 1.0, draws: int = 1000) -> dict[str, np.ndarray]:
    """Exact draws whose mean of state 1 is shifted, in sd, and spread too wide."""
    natural = known.draw(4, draws)
    centre = known.mean[1]
    natural["mean"][:, :, 1] = centre + width * (natural["mean"][:, :, 1] - centre) + shift * known.sd[1]
    return natural


def small_posterior(model: HMM, n: int = 6, seed: int = 0) -> Posterior:
    """A handful of scattered draws, enough to check averages over them."""
    rng = np.random.default_rng(seed)
    k = model.n_states
    natural = {
        "transition": rng.dirichlet(np.full(k, 3.0), size=(2, n // 2, k)),
        "mean": np.sort(rng.normal(0, 2, (2, n // 2, k)), axis=2),
    }
    return Posterior.from_chains(model, chains_of(model, natural), {"has_states": True})
