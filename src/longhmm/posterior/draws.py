"""Labelled draws of natural parameters, and how chains in unconstrained coordinates become such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import xarray as xr

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.parameters import coordinate_shapes, free_names
from longhmm.model.support import Turn, mean_direction, unwrapped
from longhmm.posterior.relabel import chain_orders, permute, permute_coordinates
from longhmm.run.chains import Chains
from longhmm.target.coordinates import Flat, constrain

SAMPLE_DIMS = ("chain", "draw")
BATCH_ENTRIES = 1 << 20  # natural parameters computed at a time


@dataclass(eq=False, repr=False)
class Draws:
    """Draws of the parameters of a model, the coordinates in which they were made, and what the run knows of them."""

    model: HMM
    draws: xr.Dataset
    unconstrained: xr.Dataset
    sample_stats: xr.Dataset
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    mode: dict[str, np.ndarray] | None = None
    information: np.ndarray | None = None

    @property
    def n_chains(self) -> int:
        return int(self.draws.sizes["chain"])

    @property
    def n_draws(self) -> int:
        """Draws per chain."""
        return int(self.draws.sizes["draw"])

    @property
    def transitions(self) -> np.ndarray:
        """`(n, K, K)`, the transition matrices of all draws."""
        return np.asarray(self.draws["transition"]).reshape(-1, *(self.model.n_states,) * 2)

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The unconstrained coordinates by name, `(chain, draw, ...)`."""
        return {str(name): np.asarray(value) for name, value in self.unconstrained.items()}

    @property
    def centre(self) -> dict[str, np.ndarray]:
        """The mode, or the posterior mean where there is none."""
        return self.mean_params() if self.mode is None else self.mode

    def params_at(self, chain: int, draw: int) -> dict[str, np.ndarray]:
        """Complete natural parameters of one draw, constants and the initial distribution included."""
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

    def over_draws(self, answer: Callable[[dict[str, np.ndarray]], Any], n: int | None = None) -> np.ndarray:
        """`(n, ...)`, the answer at each of `n` evenly spaced draws."""
        return np.stack([np.asarray(answer(params)) for params in self.iterate(n)])

    def thinned(self, n: int | None = None) -> list[tuple[int, int]]:
        """Chain and draw of `n` draws, evenly spaced over all chains."""
        if n is not None and n < 1:
            raise ModelError(f"the number of draws must be at least 1, got {n!r}.")
        total = self.n_chains * self.n_draws
        return [divmod(int(index), self.n_draws) for index in evenly_spaced(total, total if n is None else int(n))]

    def stacked(self, n: int) -> dict[str, np.ndarray]:
        """Parameters of `n` evenly spaced draws, `(n, ...)` each: what varies, and constants repeated."""
        chains, draws = np.array(self.thinned(n)).T
        found = {str(name): np.asarray(value)[chains, draws] for name, value in self.draws.items()}
        constants = {name: value for name, value in self.mean_params().items() if name not in (*found, "initial")}
        return found | {name: np.broadcast_to(value, (len(chains), *value.shape)) for name, value in constants.items()}

    def mean_params(self) -> dict[str, np.ndarray]:
        """Posterior mean as complete natural parameters."""
        natural = {str(name): np.asarray(value) for name, value in self.draws.items()}
        return mean_of(self.model, natural, axes=(0, 1))


def in_float64(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a compiled function makes of arrays on the host, in double precision, back on the host."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, function(*arguments))


def evenly_spaced(total: int, count: int) -> np.ndarray:
    """`count` of `total` draws: the middle of each of as many equal parts."""
    count = min(count, total)
    return (2 * np.arange(count) + 1) * total // (2 * count)


def central(values: np.ndarray, interval: float, method: Any = "linear") -> tuple[np.ndarray, np.ndarray]:
    """Ends of the central interval over the first axis."""
    if not 0 < interval < 1:
        raise ModelError(f"interval must lie between 0 and 1, got {interval!r}.")
    lower, upper = np.quantile(values, [(1 - interval) / 2, (1 + interval) / 2], axis=0, method=method)
    return lower, upper


def check_rate(rate: float | None) -> None:
    """Refuse a sampling rate that is none."""
    if rate is not None and not rate > 0:
        raise ModelError(f"rate must be a positive number of samples per second, got {rate!r}.")


# Names of axes --------------------------------------------------------------------------------------------------------


def parameter_dims(model: HMM) -> dict[str, tuple[str, ...]]:
    """Names of the axes of every inferred parameter: states (or levels) first, then features and the like."""
    moves = model.transitions
    found: dict[str, tuple[str, ...]] = {"transition": ("state", "to_state")}
    if moves.varies:
        found[moves.parameter] = tuple(f"{moves.parameter}_{axis}" for axis in range(len(moves.shape)))
    names = free_names(model.emission.parameters(model.n_states))
    return found | {name: model.emission.axes(name, model.n_states) for name in names}


def parameter_shapes(model: HMM) -> dict[str, tuple[int, ...]]:
    """Shape of every inferred parameter in natural space, in the order of `parameter_dims`."""
    table = model.emission.parameters(model.n_states)
    found: dict[str, tuple[int, ...]] = {"transition": (model.n_states, model.n_states)}
    if model.transitions.varies:
        found[model.transitions.parameter] = model.transitions.shape
    return found | {name: table[name].shape for name in free_names(table)}


def coordinate_dims(model: HMM) -> dict[str, tuple[str, ...]]:
    """Names of the axes of every set of unconstrained coordinates."""
    natural, shapes = parameter_dims(model), parameter_shapes(model)
    found: dict[str, tuple[str, ...]] = {"transition": ("transition_coordinate",)}
    for name, shape in coordinate_shapes(model.emission.parameters(model.n_states)).items():
        same = tuple(shape) == tuple(shapes[name])
        tail = tuple(f"{name}_coordinate{index or ''}" for index in range(len(shape) - 1))
        found[name] = natural[name] if same else (natural[name][0], *tail)
    return found


def labelled(
    arrays: Mapping[str, np.ndarray], dims: Mapping[str, tuple[str, ...]], lead: tuple[str, ...] = SAMPLE_DIMS
) -> xr.Dataset:
    """Arrays as a dataset whose axes are named and numbered from 0; `lead` names their leading axes."""
    found = xr.Dataset({name: ((*lead, *dims.get(name, ())), np.asarray(value)) for name, value in arrays.items()})
    return found.assign_coords({axis: np.arange(size) for axis, size in found.sizes.items()})


def entry_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """`name[0, 1]` for every entry of an array, in C order; the bare name for a single number."""
    return [f"{name}[{', '.join(map(str, index))}]" if shape else name for index in np.ndindex(*shape)]


def entry_table(values: Mapping[Any, Any]) -> dict[str, float]:
    """Every entry of arrays by name, in their order."""
    found: dict[str, float] = {}
    for name, each in values.items():
        found |= dict(zip(entry_names(str(name), each.shape), np.ravel(np.asarray(each)).tolist(), strict=True))
    return found


# From chains to draws -------------------------------------------------------------------------------------------------


def describe(sequences: Sequences) -> dict[str, Any]:
    """What a run remembers of its data: plain values, never the data themselves."""
    names = ("name", "length", "n_sequences", "dim", "dtype", "has_states")
    return {name: getattr(sequences, name) for name in names} | {"dtype": str(sequences.dtype)}


def label_chains(model: HMM, chains: Chains, *, keep_order: bool = False) -> dict[str, Any]:
    """What a run found as arguments of `Draws`, states numbered in one order; `keep_order` leaves their numbers alone.

    Draws are constrained in double precision.
    """
    coordinates = {name: np.array(value, np.float64) for name, value in chains.coordinates.items()}  # own copies
    _check_shapes(model, coordinates)
    natural = constrain_draws(model, coordinates)
    mode = None if chains.mode is None else constrain(model, chains.mode)
    n_chains = natural["transition"].shape[0]
    base = np.arange(model.n_states)
    orders = [base] * n_chains
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
    information = chains.information
    return {
        "draws": labelled(natural, parameter_dims(model)),
        "unconstrained": labelled(coordinates, coordinate_dims(model)),
        "sample_stats": labelled(chains.stats, {}),
        "settings": {"state_order": [[int(state) for state in order] for order in orders]},
        "notes": chains.notes,
        "mode": None if mode is None else permute(model, mode, base),
        "information": None if information is None else _permute_information(model, coordinates, information, base),
    }


def constrain_draws(model: HMM, coordinates: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Natural values `(chain, draw, ...)` of every inferred parameter; `initial` and constants are not among them."""
    lead = coordinates["transition"].shape[:2]
    total = lead[0] * lead[1]
    flat = {name: value.reshape(total, *value.shape[2:]) for name, value in coordinates.items()}
    size = sum(int(np.prod(value.shape[1:])) for value in flat.values()) + model.n_states**2
    batch = int(np.clip(BATCH_ENTRIES // size, 1, total))
    parts: list[dict[str, np.ndarray]] = []
    for start in range(0, total, batch):
        # Always the same shape, so that one compiled function serves; the last batch overlaps the one before.
        at = min(start, total - batch)
        found = in_float64(_constrain_batch, model, {name: value[at : at + batch] for name, value in flat.items()})
        parts.append({name: found[name][start - at :] for name in parameter_dims(model)})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in joined.items()}


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
