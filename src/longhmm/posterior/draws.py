"""Labelled draws of natural parameters, and how chains in unconstrained coordinates become such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.turn import Turn, mean_direction, unwrapped
from longhmm.posterior import convergence
from longhmm.posterior.labels import SAMPLE_DIMS, coordinate_dims, labelled, parameter_dims
from longhmm.posterior.relabel import chain_orders, permute, permute_coordinates
from longhmm.run.chains import Chains
from longhmm.target.coordinates import Flat, constrain

if TYPE_CHECKING:
    import pandas as pd

BATCH_ENTRIES = 1 << 20  # natural parameters computed at a time


class Draws:
    """Draws of the parameters of a model, with the coordinates in which they were made and one number for each."""

    def __init__(self, model: HMM, draws: xr.Dataset, unconstrained: xr.Dataset, sample_stats: xr.Dataset) -> None:
        self.model = model
        self.draws, self.unconstrained, self.sample_stats = draws, unconstrained, sample_stats

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


class Labelled(NamedTuple):
    """Everything a run found, with states numbered in one order throughout."""

    draws: xr.Dataset
    unconstrained: xr.Dataset
    sample_stats: xr.Dataset
    mode: dict[str, np.ndarray] | None
    information: np.ndarray | None
    orders: list[list[int]]


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


def label_chains(model: HMM, chains: Chains, *, keep_order: bool = False) -> Labelled:
    """Constrain all draws in double precision and number the states; `keep_order` leaves their numbers alone."""
    coordinates = {name: np.array(value, np.float64) for name, value in chains.coordinates.items()}  # own copies
    _check_shapes(model, coordinates)
    natural = constrain_draws(model, coordinates)
    mode = None if chains.mode is None else constrain_one(model, chains.mode)
    n_chains = natural["transition"].shape[0]
    orders = [np.arange(model.n_states)] * n_chains
    base = np.arange(model.n_states)
    if not keep_order and np.isfinite(natural["transition"]).all():
        means = [mean_of(model, {name: value[chain] for name, value in natural.items()}) for chain in range(n_chains)]
        orders = chain_orders(model, means, mode)
        base = base if mode is None else chain_orders(model, [mode], mode)[0]
    for chain, order in enumerate(orders):
        if not np.array_equal(order, np.arange(model.n_states)):
            for arrays, move in ((natural, permute), (coordinates, permute_coordinates)):
                for name, moved in move(model, {name: value[chain] for name, value in arrays.items()}, order).items():
                    arrays[name][chain] = moved
    for name in angle_names(model):
        natural[name] = unwrapped(natural[name], (0, 1))  # one run of numbers, also where they pass pi
    return Labelled(
        labelled(natural, parameter_dims(model), SAMPLE_DIMS),
        labelled(coordinates, coordinate_dims(model), SAMPLE_DIMS),
        labelled(chains.stats, {}, SAMPLE_DIMS),
        None if mode is None else permute(model, mode, base),
        None if chains.information is None else _permute_information(model, coordinates, chains.information, base),
        [[int(state) for state in order] for order in orders],
    )


def constrain_draws(model: HMM, coordinates: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Natural values `(chain, draw, ...)` of every inferred parameter; `initial` and constants are not among them."""
    lead = coordinates["transition"].shape[:2]
    total = lead[0] * lead[1]
    flat = {name: value.reshape(total, *value.shape[2:]) for name, value in coordinates.items()}
    dims = parameter_dims(model)
    size = sum(int(np.prod(value.shape[1:])) for value in flat.values()) + model.n_states**2
    batch = int(np.clip(BATCH_ENTRIES // size, 1, total))
    parts: list[dict[str, np.ndarray]] = []
    with jax.enable_x64(True):
        for start in range(0, total, batch):
            # Always the same shape, so that one compiled program serves; the last batch overlaps the one before.
            at = min(start, total - batch)
            found = _constrain_batch(model, {name: jnp.asarray(value[at : at + batch]) for name, value in flat.items()})
            parts.append({name: np.asarray(found[name])[start - at :] for name in dims})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in dims}
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in joined.items()}


def constrain_one(model: HMM, coordinates: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Complete natural parameters, constants and initial law included, at one point."""
    return constrain(model, coordinates)


def mean_of(model: HMM, natural: Mapping[str, np.ndarray], axes: tuple[int, ...] = (0,)) -> dict[str, np.ndarray]:
    """Posterior mean as complete natural parameters: rows of `transition` sum to one, angles average as angles."""
    angles = angle_names(model)
    found = {
        name: mean_direction(value, axes) if name in angles else value.mean(axes) for name, value in natural.items()
    }
    found["transition"] = found["transition"] / found["transition"].sum(axis=1, keepdims=True)
    return model.validate(found)


def angle_names(model: HMM) -> set[str]:
    """Parameters that are angles."""
    table = model.emission.parameters(model.n_states)
    return {name for name, parameter in table.items() if isinstance(parameter.support, Turn)}


@jax.jit
def _constrain_batch(model: HMM, coordinates: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    return jax.vmap(model.constrain)(dict(coordinates))


def _check_shapes(model: HMM, coordinates: Mapping[str, np.ndarray]) -> None:
    names = coordinate_dims(model)
    if set(coordinates) != set(names):
        raise ModelError(f"chains must hold coordinates named {sorted(names)}, got {sorted(coordinates)}.")
    leads = {value.shape[:2] for value in coordinates.values()}
    if len(leads) != 1 or 0 in next(iter(leads)):
        raise ModelError(f"chains must hold at least one draw of every coordinate, (chain, draw, ...), got {leads}.")


def _permute_information(
    model: HMM, coordinates: Mapping[str, np.ndarray], information: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """The information in renumbered coordinates: both of its axes are moved like a point is."""
    layout = Flat.like({name: value[0, 0] for name, value in coordinates.items()})
    found = np.asarray(information, np.float64)
    for _ in range(2):
        found = layout.ravel_numpy(permute_coordinates(model, layout.unravel(found), order)).T
    return found
