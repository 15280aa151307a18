"""Levels with one distance between neighbours: N channels that are open or closed, each adding the same current."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from longhmm.errors import ModelError
from longhmm.model.conjugate import RootInverseGamma
from longhmm.model.covariance import LOG_2PI
from longhmm.model.densities import ndtr
from longhmm.model.emissions import Emission
from longhmm.model.emissions.gaussian import VARIANCE_SHARE
from longhmm.model.emissions.tied import Tied
from longhmm.model.lowering import GaussianLowering
from longhmm.model.parameters import Parameter, Params, Pending, make_parameter, specification
from longhmm.model.registry import EMISSIONS, emission_from_name
from longhmm.model.summary import DataSummary

MOST_ROWS, EM_STEPS = 5000, 50  # with which a start is sought


@EMISSIONS.register("equally-spaced", offered=False)
class EquallySpaced(Emission):
    """State k is normal about `base + step levels[k]`, with the standard deviation `sd` of its level.

    Args:
        levels: the level of every state, such as `Channels(...).levels`.
        base, step, sd: priors or fixed values; by default those of a `Gaussian`'s mean for `base`, half-normal with the
            range of the data for `step`, and those of its `sd`, one for each level. A step is positive: turn the sign
            of data whose channels open downwards.

    >>> import longhmm as lh
    >>> lh.EquallySpaced((0, 1, 1, 2))
    EquallySpaced((0, 1, 1, 2))
    """

    shared = ("base", "step")

    def __init__(self, levels: Sequence[int], *, base: Any = None, step: Any = None, sd: Any = None) -> None:
        numbers = np.asarray(levels)
        if (
            numbers.ndim != 1
            or numbers.dtype.kind not in "iu"
            or set(numbers.tolist()) != set(range(numbers.max() + 1))
        ):
            raise ModelError(
                f"levels must be one integer per state, from 0 without gaps, such as (0, 1), got {levels!r}."
            )
        self.levels = tuple(int(level) for level in numbers)
        regions = {"base": constraints.real, "step": constraints.positive, "sd": constraints.positive}
        given = {"base": base, "step": step, "sd": sd}
        specs = {
            name: Pending(region) if given[name] is None else specification(name, given[name])
            for name, region in regions.items()
        }
        self._describe(1, specs, vector=True)

    def __repr__(self) -> str:
        return f"EquallySpaced({self.levels})"

    def options(self) -> dict[str, Any]:
        return {"levels": list(self.levels)}

    def beside(self, transitions: Any) -> Any:
        if len(self.levels) != transitions.n_states:
            raise ModelError(f"levels must be one for each of {transitions.n_states} states, got {self.levels}.")
        return self

    @cached_property
    def _of_state(self) -> np.ndarray:
        return np.array(self.levels)

    @cached_property
    def untied(self) -> Emission:
        given = {name: None if isinstance(spec, Pending) else spec for name, spec in self.specifications.items()}
        return EquallySpaced(range(max(self.levels) + 1), **given)

    def state_levels(self, n_states: int) -> np.ndarray:
        return self._of_state

    def states_differ(self, n_states: int) -> bool:
        return True

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        return ("level",) if name == "sd" else ("all_levels",)

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        sizes = {"base": 1, "step": 1, "sd": max(self.levels) + 1}
        table = {name: make_parameter(name, spec, sizes[name], ()) for name, spec in self.specifications.items()}
        # One event: all states meet in the same two numbers.
        free = table["base"].is_free
        return {**table, "base": table["base"]._replace(support=constraints.real_vector) if free else table["base"]}

    def resolve(self, summary: DataSummary) -> Emission:
        spread = float(summary.spread[0])
        found: dict[str, Any] = {
            "base": dist.Normal(float(summary.centre[0]), spread),
            "step": dist.HalfNormal(spread),
            "sd": RootInverseGamma(1.5, 0.5 * VARIANCE_SHARE * float(summary.sd[0]) ** 2),
        }
        known = {name: spec for name, spec in self.specifications.items() if not isinstance(spec, Pending)}
        return EquallySpaced(self.levels, **{**found, **known})

    def _features(self, params: Params) -> tuple[jax.Array, jax.Array]:
        """`(K, 1)`, means and standard deviations."""
        base, step, sd = (jnp.asarray(params[name]) for name in ("base", "step", "sd"))
        return (base + step * jnp.asarray(self._of_state, step.dtype))[:, None], sd[self._of_state][:, None]

    def means(self, params: Params) -> jax.Array:
        return self._features(params)[0]

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        mean, sd = (each[:, 0] for each in self._features(params))
        return -0.5 * ((y - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * LOG_2PI

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, sd = self._features(params)
        found = ndtr((values[:, None, :] - mean) / sd)
        return found, found

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        mean, sd = (each[states] for each in self._features(params))
        return mean + sd * jax.random.normal(key, mean.shape, mean.dtype)

    @cached_property
    def lowering(self) -> GaussianLowering:
        return GaussianLowering(self, self._features)

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray]:
        """The likeliest mixture of equally spaced levels, from the line through the groups' means and from lines that
        span the values: groups of like size split common levels and join rare ones."""
        y, at = np.concatenate(groups).ravel(), np.arange(len(groups))
        y = y[:: -(-len(y) // MOST_ROWS)]
        least = 1e-3 * (float(np.ptp(y)) or 1.0)
        means = np.array([group.mean() if len(group) else y.mean() for group in groups])
        lines = [_line(at, means, np.array([len(group) for group in groups]) + 1e-9, least)]
        low, high = np.quantile(y, [0.02, 0.999])
        lines += [(float(low), max(float(high - low) / span, least)) for span in at[1:]]
        _, base, step, sd = max(_mixture(y, at, *line, least) for line in lines)
        found = {"base": np.array([base]), "step": np.array([step]), "sd": np.full(len(groups), sd)}
        return {name: value for name, value in found.items() if name in self.free_names}


def _line(at: np.ndarray, values: np.ndarray, weight: np.ndarray, least: float) -> tuple[float, float]:
    """The weighted least squares `base + step * at`, rising by `least` or more."""
    middle = np.average(at, weights=weight)
    slope = np.sum(weight * (at - middle) * values) / max(np.sum(weight * (at - middle) ** 2), 1e-9)
    step = max(float(slope), least)
    return float(np.average(values - step * at, weights=weight)), step


def _mixture(
    y: np.ndarray, at: np.ndarray, base: float, step: float, least: float
) -> tuple[float, float, float, float]:
    """Log likelihood, base, step and the one standard deviation after some steps of EM, rows taken as independent."""
    share, sd = np.full(len(at), 1.0 / len(at)), max(step / 3, least)
    for _ in range(EM_STEPS):
        away = (y[:, None] - base - step * at) / sd
        joint = share / sd * np.exp(-0.5 * away**2) + 1e-300
        total = joint.sum(axis=1, keepdims=True)
        gamma = joint / total
        share = gamma.mean(axis=0)
        base, step = _line(np.broadcast_to(at, gamma.shape), np.broadcast_to(y[:, None], gamma.shape), gamma, least)
        sd = max(float(np.sqrt(np.mean(np.sum(gamma * (y[:, None] - base - step * at) ** 2, axis=1)))), least)
    return float(np.sum(np.log(total))), base, step, sd


def emission_on(
    name: str,
    data: Any,
    held_out: float = 0.0,
    *,
    levels: tuple[int, ...] | None = None,
    equal: bool = False,
    brightness: bool = False,
    **given: Any,
) -> Emission:
    """What the command line says of a family by name: states that share levels, or, at `equal` distances, channels;
    and sequences of unlike brightness."""
    if brightness:
        if held_out:
            raise ModelError(f"--held-out must be 0 with --brightness, which others do not have, got {held_out:g}.")
        around: Any = EMISSIONS.classes()["brightness"]
        return around(emission_on(name, data, levels=levels, equal=equal, **given))  # type: ignore[no-any-return]
    if not equal:
        emission = emission_from_name(name, data, **given)
        return emission if levels is None else Tied(emission, levels)
    if other := sorted({"noise", "response", "lags"} & set(given)) or ["emission"] * (name != "gaussian"):
        raise ModelError(
            f"--{other[0]} must not be given where channels add equal currents with white, normal noise: ask for "
            f"--channels 3:free or --emission gaussian; the emission was {name}."
        )
    assert levels is not None
    return EquallySpaced(levels, **given)
