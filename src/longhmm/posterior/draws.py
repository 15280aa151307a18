"""Labelled draws of natural parameters, and how chains in unconstrained coordinates become such."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
import xarray as xr

from longhmm.backends.programs import quick
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError, check_whole
from longhmm.model.formula import own_axes
from longhmm.model.hmm import HMM
from longhmm.model.initialise import permute
from longhmm.model.parameters import coordinate_shapes, free_names
from longhmm.model.support import Turn, mean_direction, unwrapped
from longhmm.posterior.names import data_facts, labels_of
from longhmm.posterior.relabel import chain_orders, permute_coordinates
from longhmm.run.chains import Chains
from longhmm.run.checkpoint import from_plain
from longhmm.run.request import Request
from longhmm.run.run import Run
from longhmm.samplers.contract import Sampler
from longhmm.target.coordinates import Arrays, Flat, constrain

if TYPE_CHECKING:
    from longhmm.posterior.diagnostics.verdict import Verdict

SAMPLE_DIMS = ("chain", "draw")
DESCRIBED = ("name", "length", "n_sequences", "dim", "dtype", "has_states")  # what a run remembers of its data
BATCH_ENTRIES, BATCH_DRAWS = 1 << 20, 1 << 12  # natural parameters computed at a time, of so many draws


@dataclass(eq=False, repr=False)
class Draws:
    """Draws of the parameters of a model and what the run knows of them; for the attributes see `Posterior`."""

    model: HMM
    draws: xr.Dataset
    unconstrained: xr.Dataset
    sample_stats: xr.Dataset
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    mode: Arrays | None = None
    information: np.ndarray | None = None
    verdict: Verdict | None = None
    run: Run | None = None

    @classmethod
    def from_chains(cls, model: HMM, chains: Chains, data: Sequences | Mapping[str, Any] | None = None) -> Self:
        """Turn what a run left behind into a posterior: natural parameters, states numbered in one order; `data` is the
        data of the run, or a description of them with the keys of `DESCRIBED`."""
        if isinstance(data, Sequences):
            model = model.resolve(data)
            data = {name: getattr(data, name) for name in DESCRIBED} | data_facts(data)
        described = dict(data or {})
        coordinates = {name: np.array(value, np.float64) for name, value in chains.coordinates.items()}  # own copies
        names, leads = coordinate_axes(model), {value.shape[:2] for value in coordinates.values()}
        if set(coordinates) != set(names):
            raise ModelError(f"chains must hold coordinates named {sorted(names)}, got {sorted(coordinates)}.")
        if len(leads) != 1 or 0 in next(iter(leads)):
            raise ModelError(f"chains must hold draws of every coordinate, (chain, draw, ...), got {leads}.")
        natural = constrain_draws(model, coordinates)
        mode = None if chains.mode is None else constrain(model, chains.mode)
        n_chains = natural["transition"].shape[0]
        base = same = np.arange(model.n_states)
        orders = [same] * n_chains
        # States that were known in places have numbers that mean something.
        if not described.get("has_states") and np.isfinite(natural["transition"]).all():
            chain_draws = ({name: value[chain] for name, value in natural.items()} for chain in range(n_chains))
            orders = chain_orders(model, [mean_of(model, each) for each in chain_draws], mode)
            base = base if mode is None else chain_orders(model, [mode], mode)[0]
        for chain, order in enumerate(orders):
            if not np.array_equal(order, same):
                for arrays, move in ((natural, permute), (coordinates, permute_coordinates)):
                    moved = move(model, {name: value[chain] for name, value in arrays.items()}, order)
                    for name, value in moved.items():
                        arrays[name][chain] = value
        for name in angle_names(model):
            natural[name] = unwrapped(natural[name], (0, 1))  # one run of numbers, also where they pass pi
        information = chains.information
        if information is not None:
            information = np.asarray(information, np.float64)
            layout = Flat.like({name: value[0, 0] for name, value in coordinates.items()})
            for _ in range(2):  # both of its axes are moved like a point is
                information = layout.ravel_numpy(permute_coordinates(model, layout.unravel(information), base)).T
        about = {"data": described} if described else {}
        return cls(
            model,
            labelled(natural, parameter_axes(model)).assign_coords(labels_of(model, described)),
            labelled(coordinates, names),
            labelled(chains.stats, {}),
            {**about, **copy.deepcopy(dict(chains.settings)), "state_order": [order.tolist() for order in orders]},
            chains.notes,
            None if mode is None else permute(model, mode, base),
            information,
        )

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
    def coordinates(self) -> Arrays:
        """The unconstrained coordinates by name, `(chain, draw, ...)`."""
        return {str(name): np.asarray(value) for name, value in self.unconstrained.items()}

    @property
    def centre(self) -> Arrays:
        """The mode, or the posterior mean where there is none."""
        return self.mean_params() if self.mode is None else self.mode

    def params_at(self, chain: int, draw: int) -> Arrays:
        """Complete natural parameters of one draw, constants and the initial distribution included."""
        chains, draws = self.n_chains, self.n_draws
        if not (-chains <= chain < chains and -draws <= draw < draws):
            raise ModelError(f"chain and draw must be below {chains} and {draws}, got chain {chain} and draw {draw}.")
        picked = self.draws.isel(chain=chain, draw=draw)
        return self.model.validate({str(name): np.asarray(value) for name, value in picked.items()})

    def iterate(self, n: int | None = None) -> Iterator[Arrays]:
        """Parameters of `n` draws, evenly spaced over all chains (all draws if None)."""
        return (self.params_at(*at) for at in self.thinned(n))

    def thinned(self, n: int | None = None) -> list[tuple[int, int]]:
        """Chain and draw of `n` draws, evenly spaced over all chains."""
        total = self.n_chains * self.n_draws
        check_whole("draws", total if n is None else n, 1)
        return [divmod(int(index), self.n_draws) for index in evenly_spaced(total, total if n is None else int(n))]

    def stacked(self, n: int) -> Arrays:
        """Parameters of `n` evenly spaced draws, `(n, ...)` each: what varies, and constants repeated."""
        chains, draws = np.array(self.thinned(n)).T
        found = {str(name): np.asarray(value)[chains, draws] for name, value in self.draws.items()}
        constants = {name: value for name, value in self.mean_params().items() if name not in (*found, "initial")}
        return found | {name: np.broadcast_to(value, (len(chains), *value.shape)) for name, value in constants.items()}

    def mean_params(self) -> Arrays:
        """Posterior mean as complete natural parameters."""
        return mean_of(self.model, {str(name): np.asarray(value) for name, value in self.draws.items()}, axes=(0, 1))

    def stored_run(self, data: Any, sampler: Sampler | None = None) -> Run:
        """The run of a posterior that was read from disk: what it asked for; the rest is in its checkpoint."""
        asked, place = self.settings.get("request"), self.settings.get("checkpoint")
        if not isinstance(asked, dict) or place is None:
            raise ModelError(
                "This posterior cannot go on, since its run kept no checkpoint: sample with checkpoint='folder', or "
                "extend before saving."
            )
        if data is None:
            raise ModelError("data must be the data of the run where a posterior was loaded, got None.")
        given = {name: from_plain(asked.get(name)) for name in ("sampler", "windows", "buffer")}
        given |= {name: asked[name] for name in ("chains", "draws", "warmup", "thin", "init", "seed")}
        given["automatic"] = given["spaced"] = bool(asked["automatic"])
        given["sampler"] = sampler or given["sampler"]
        if given["sampler"] is None:
            raise ModelError("sampler must be given: the run used one of your own, which is not stored with it.")
        return Run(Request(self.model, self.model.opened(data), checkpoint=place, **given))


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
    if rate is not None and not rate > 0:
        raise ModelError(f"rate must be a positive number of samples per second, got {rate!r}.")


def parameter_axes(model: HMM) -> dict[str, dict[str, int]]:
    """Names and sizes of the axes of every inferred parameter: states (or levels) first, then features and the like."""
    moves, emission, n_states = model.transitions, model.emission, model.n_states
    found = {"transition": {"state": n_states, "to_state": n_states}, **own_axes(moves)}
    table = emission.parameters(n_states)
    for name in free_names(table):
        found[name] = dict(zip(emission.axes(name, n_states), table[name].shape, strict=True))
    return found


def coordinate_axes(model: HMM) -> dict[str, tuple[str, ...]]:
    """Names of the axes of every set of unconstrained coordinates."""
    found: dict[str, tuple[str, ...]] = {"transition": ("transition_coordinate",)}
    natural = parameter_axes(model)
    for name, shape in coordinate_shapes(model.emission.parameters(model.n_states)).items():
        axes = tuple(natural[name])
        tail = tuple(f"{name}_coordinate{index or ''}" for index in range(len(shape) - 1))
        found[name] = axes if tuple(shape) == tuple(natural[name].values()) else (axes[0], *tail)
    return found


def labelled(arrays: Arrays, axes: Mapping[str, Iterable[str]], lead: tuple[str, ...] = SAMPLE_DIMS) -> xr.Dataset:
    """Arrays as a dataset whose axes are named and numbered from 0; `lead` names their leading axes."""
    found = xr.Dataset({name: ((*lead, *axes.get(name, ())), np.asarray(value)) for name, value in arrays.items()})
    return found.assign_coords({axis: np.arange(size) for axis, size in found.sizes.items()})


def entry_names(values: xr.DataArray, skip: int = 2) -> list[str]:
    """`name[0, 1]` for every entry behind the first axes, in C order; the bare name for a single number."""
    labels, places = [values.coords[axis].values for axis in values.dims[skip:]], np.ndindex(*values.shape[skip:])
    entries = [", ".join(str(label[i]) for label, i in zip(labels, at, strict=True)) for at in places]
    return [f"{values.name}[{entry}]" if labels else str(values.name) for entry in entries]


def entry_table(values: Mapping[Any, Any]) -> dict[str, float]:
    """Every entry of arrays by name, in their order."""
    found: dict[str, float] = {}
    for each in values.values():
        found |= dict(zip(entry_names(each, 0), np.ravel(np.asarray(each)).tolist(), strict=True))
    return found


def constrain_draws(model: HMM, coordinates: Mapping[str, np.ndarray]) -> Arrays:
    """Natural values `(chain, draw, ...)` of every inferred parameter; `initial` and constants are not among them."""
    lead = coordinates["transition"].shape[:2]
    flat = {name: value.reshape(lead[0] * lead[1], *value.shape[2:]) for name, value in coordinates.items()}
    size = sum(value[0].size for value in flat.values()) + model.n_states**2
    total, batch = lead[0] * lead[1], max(1, min(BATCH_DRAWS, BATCH_ENTRIES // size))  # one shape, and one program
    batches = (np.minimum(np.arange(first, first + batch), total - 1) for first in range(0, total, batch))
    parts = [in_float64(_constrained, model, {name: each[some] for name, each in flat.items()}) for some in batches]
    found = {name: np.concatenate([part[name] for part in parts])[:total] for name in parameter_axes(model)}
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in found.items()}


_constrained = quick(lambda model, coordinates: jax.vmap(model.constrain)(dict(coordinates)))


def mean_of(model: HMM, natural: Mapping[str, np.ndarray], axes: tuple[int, ...] = (0,)) -> Arrays:
    """Posterior mean as complete natural parameters: rows of `transition` sum to one, angles average as angles."""
    found = {name: value.mean(axes) for name, value in natural.items()}
    found |= {name: mean_direction(natural[name], axes) for name in angle_names(model)}
    found["transition"] = found["transition"] / found["transition"].sum(axis=1, keepdims=True)
    return model.validate(found)


def angle_names(model: HMM) -> list[str]:
    table = model.emission.parameters(model.n_states)
    return [name for name in free_names(table) if isinstance(table[name].support, Turn)]
