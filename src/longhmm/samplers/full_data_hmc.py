"""Hamiltonian Monte Carlo on the exact marginal likelihood: NUTS, and HMC with a fixed number of leapfrogs.

Moves and adaptation are made of BlackJAX's pieces. Every leapfrog is one pass over all data, the states summed out, and
draws are from the exact posterior up to Monte Carlo error: the yardstick of others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.evaluate import in_double
from longhmm.errors import LongHMMError, ModelError
from longhmm.samplers import SAMPLERS
from longhmm.samplers.contract import Coordinates, Info, Sampler, in_blocks
from longhmm.target.coordinates import Flat
from longhmm.target.target import Estimator, ExactPosterior, ResidentData

JITTER = 0.2  # HMC: the step size varies by this share, so that no period of the dynamics resonates with its length
STEP_SIZE_STEPS = 100  # for the step size alone, where the mass matrix is given
LARGEST_SD = 3.0  # of the first guess of the mass matrix, in unconstrained coordinates
CURVATURE, WIDTH = 0.1, 1e-4  # share of the adaptation that the first guess counts for; width of its differences


class HMCState(NamedTuple):
    """Where the chain is, and what its moves are made with."""

    coordinates: Coordinates
    log_posterior: Array  # up to the evidence
    gradient: Array  # flat, `(P,)`
    step_size: Array
    inverse_mass: Array  # `(P, P)`, an estimate of the posterior covariance in flat coordinates
    level: Array  # the overlap with which passes begin; kept here so that a resumed chain is the same chain


class _Hamiltonian(Sampler):
    """What NUTS and HMC share: all data in double precision, and the adaptation."""

    inverse_mass: Any
    step_size: float | None
    target_acceptance: float
    adaptation_steps: int
    x64: ClassVar[bool] = True
    sees: ClassVar[Estimator] = ResidentData()
    learned: ClassVar[tuple[str, ...]] = ("step_size",)  # one program serves all step sizes

    def __post_init__(self) -> None:
        if self.inverse_mass is not None:  # can be compared and hashed, so that equal samplers share compiled programs
            rows = np.atleast_2d(np.asarray(self.inverse_mass, np.float64)).tolist()
            object.__setattr__(self, "inverse_mass", tuple(map(tuple, rows)))

    def init(self, target: ExactPosterior, key: Array, u: Coordinates) -> HMCState:
        flat, given = Flat.like(u), self.inverse_mass
        mass = np.eye(flat.size) if given is None else np.asarray(given)
        if mass.shape != (flat.size,) * 2 or not np.all(np.isfinite(mass)) or np.linalg.eigvalsh(mass).min() <= 0:
            raise ModelError(
                f"inverse_mass must be a positive definite matrix of shape ({flat.size}, {flat.size}), one row per "
                f"unconstrained coordinate, names sorted; got shape {mass.shape}: leave it out to have it adapted."
            )
        step_size = flat.size**-0.25 if self.step_size is None else self.step_size
        posterior = target.at_level(target.settle(u))
        with in_double():
            wide = {name: jnp.asarray(value, jnp.float64) for name, value in u.items()}
            value, gradient = posterior.log_density_and_gradient(wide)
            numbers = jnp.asarray(step_size, jnp.float64), jnp.asarray(mass)
            return HMCState(wide, value, flat.ravel(gradient), *numbers, posterior.level)

    def step(self, target: ExactPosterior, key: Array, state: HMCState, minibatch: None) -> tuple[HMCState, Info]:
        flat, posterior = Flat.like(state.coordinates), target.at_level(state.level)
        start = _blackjax().mcmc.hmc.HMCState(flat.ravel(state.coordinates), state.log_posterior, state.gradient)
        density, scales = (lambda vector: posterior(flat.unravel(vector))), (state.step_size, state.inverse_mass)
        new, info = self.move(key, start, density, *scales)
        place = {"coordinates": flat.unravel(new.position), "log_posterior": new.logdensity}
        finite = jnp.isfinite(new.logdensity) & jnp.all(jnp.isfinite(new.position))
        stats = {
            "acceptance": info.acceptance_rate,  # mean Metropolis probability over the trajectory
            "diverged": info.is_divergent,  # whether the energy error passed 1000 somewhere on it
            "leapfrogs": jnp.asarray(info.num_integration_steps),  # passes over the data
            "log_posterior": new.logdensity,  # at the new coordinates
        }
        return state._replace(**place, gradient=new.logdensity_grad), Info(flat.unravel(state.gradient), finite, stats)

    def move(self, key: Array, start: Any, density: Any, step_size: Array, mass: Array) -> tuple[Any, Any]:
        """One move of BlackJAX's algorithm."""
        algorithm, settings = self.algorithm()
        kernel: Callable[..., tuple[Any, Any]] = algorithm.build_kernel()
        return kernel(key, start, density, step_size, mass, **settings)

    def algorithm(self) -> tuple[Any, dict[str, int]]:
        """BlackJAX's algorithm and its own settings."""
        raise NotImplementedError

    def adapt(self, target: ExactPosterior, key: Array, state: HMCState) -> Iterator[tuple[HMCState, float]]:
        """Dual averaging of the step size, and under Stan's schedule of growing windows the covariance of the draws."""
        given, behind = self.inverse_mass is not None, 0.0
        if given and self.step_size is not None:
            return
        from blackjax.adaptation.window_adaptation import build_schedule

        if not given:
            behind = CURVATURE
            with in_double():
                posterior = target.at_level(state.level)
            for guess, share in curvature(posterior, state.coordinates):
                state = state._replace(inverse_mass=guess, step_size=np.float64(1.0))  # type: ignore[arg-type]
                yield state, behind * share
        steps = STEP_SIZE_STEPS if given else self.adaptation_steps
        with in_double():
            size, mass = jnp.asarray(state.step_size, jnp.float64), jnp.asarray(state.inverse_mass)
            averaging, metric = (each[0] for each in _pieces(self))
            chain = state._replace(step_size=size, inverse_mass=mass)
            adapting = Adapting(chain, averaging(size), metric(mass.shape[0], mass))
            schedule = jnp.zeros((steps, 2), int) if given else build_schedule(steps)
        blocks = in_blocks(_adapting_step, key, adapting, steps, self, target, schedule)
        for adapting, done in blocks:
            yield adapting.chain, behind + (1 - behind) * done / steps
        with in_double():
            found = jnp.exp(adapting.averaging.log_step_size_avg) if self.step_size is None else self.step_size
            mass = adapting.chain.inverse_mass if given else adapting.metric.inverse_mass_matrix
            yield adapting.chain._replace(step_size=jnp.asarray(found, jnp.float64), inverse_mass=mass), 1.0


@SAMPLERS.register("nuts")
@dataclass(frozen=True)
class NUTS(_Hamiltonian):
    """The no-U-turn sampler: it finds out by itself how far to go. Each leapfrog, with M the mass matrix, is

        r' = r + h/2 grad log p(u | y),     u' = u + h M^-1 r',     r'' = r' + h/2 grad log p(u' | y)

    Args:
        target_acceptance: mean Metropolis probability at which the step size is adapted.
        inverse_mass: `(P, P)` posterior covariance in flat unconstrained coordinates, such as the inverse of the
            observed information at the mode. None: adapted, from the curvature at the start on.
        step_size: None: adapted.
        max_tree_depth: trajectories have at most 2^depth leapfrogs.
        adaptation_steps: steps of the adaptation if the mass matrix is not given.

    Example:
        >>> import longhmm as lh
        >>> lh.NUTS(target_acceptance=0.9).name
        'NUTS'

    References: Hoffman and Gelman (2014); Betancourt (2017). Differs by a dense mass matrix, which begins at the
    curvature of the start.
    """

    target_acceptance: float = 0.8
    inverse_mass: Any = None
    step_size: float | None = None
    max_tree_depth: int = 8
    adaptation_steps: int = 300
    name: ClassVar[str] = "NUTS"
    cites: ClassVar[tuple[str, ...]] = ("hoffman2014",)

    def algorithm(self) -> tuple[Any, dict[str, int]]:
        return _blackjax().nuts, {"max_num_doublings": self.max_tree_depth}


@SAMPLERS.register("hmc")
@dataclass(frozen=True)
class HMC(_Hamiltonian):
    """Hamiltonian Monte Carlo with `leapfrogs` steps per move, each

        r' = r + h/2 grad log p(u | y),     u' = u + h M^-1 r',     r'' = r' + h/2 grad log p(u' | y)

    Args:
        step_size: None: adapted.
        leapfrogs: steps of each trajectory.
        inverse_mass, target_acceptance, adaptation_steps: as for `NUTS`.

    Example:
        >>> import longhmm as lh
        >>> lh.HMC(leapfrogs=4).name
        'HMC'

    Reference: Neal (2011), MCMC using Hamiltonian dynamics. Differs by the step size, which is jittered by 20 %.
    """

    step_size: float | None = None
    leapfrogs: int = 8
    inverse_mass: Any = None
    target_acceptance: float = 0.8
    adaptation_steps: int = 300
    name: ClassVar[str] = "HMC"
    cites: ClassVar[tuple[str, ...]] = ("neal2011",)

    def algorithm(self) -> tuple[Any, dict[str, int]]:
        return _blackjax().hmc, {"num_integration_steps": self.leapfrogs}

    def move(self, key: Array, start: Any, density: Any, step_size: Array, mass: Array) -> tuple[Any, Any]:
        key, jitter = jax.random.split(key)
        step_size = step_size * jax.random.uniform(jitter, (), mass.dtype, 1 - JITTER, 1 + JITTER)
        return super().move(key, start, density, step_size, mass)


def _blackjax() -> Any:
    try:
        import blackjax
    except ImportError:
        raise LongHMMError("NUTS and HMC need BlackJAX: pip install blackjax.") from None
    return blackjax


class Adapting(NamedTuple):
    """The state of the chain, and BlackJAX's of the dual averaging and of the mass matrix."""

    chain: Any
    averaging: Any
    metric: Any


def _pieces(sampler: Any) -> tuple[Any, Any]:
    """BlackJAX's adaptation of the step size and of a dense mass matrix."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(sampler.target_acceptance), mass_matrix_adaptation(is_diagonal_matrix=False)


def _adapting_step(
    number: Array, key: Array, adapting: Adapting, sampler: Any, target: ExactPosterior, schedule: Array
) -> Adapting:
    (begin_size, update_size, final_size), (_, update_mass, final_mass) = _pieces(sampler)

    def begun_anew(averaging: Any, metric: Any) -> tuple[Any, Any]:
        return begin_size(final_size(averaging)), final_mass(metric)

    slow, ends = schedule[number]
    chain, info = sampler.step(target, key, adapting.chain, None)
    averaging = update_size(adapting.averaging, info.stats["acceptance"])
    position = Flat.like(chain.coordinates).ravel(chain.coordinates)
    metric = jax.lax.cond(slow, lambda each: update_mass(each, position), lambda each: each, adapting.metric)
    averaging, metric = jax.lax.cond(ends, begun_anew, lambda *both: both, averaging, metric)
    chain = chain._replace(step_size=jnp.exp(averaging.log_step_size), inverse_mass=metric.inverse_mass_matrix)
    return Adapting(chain, averaging, metric)


def curvature(posterior: ExactPosterior, coordinates: Coordinates) -> Iterator[tuple[np.ndarray, float]]:
    """A first guess of the posterior covariance: the inverse of the curvature here, every eigenvalue made positive.

    By central differences; the share of them that is done comes along, and only the last guess is one.
    """
    flat = Flat.like(coordinates)
    at = flat.ravel_numpy(coordinates)

    def gradient(vector: np.ndarray) -> np.ndarray:
        return flat.ravel_numpy(posterior.log_density_and_gradient(flat.unravel(vector))[1])

    hessian = np.zeros((flat.size, flat.size))
    for index, step in enumerate(WIDTH * np.eye(flat.size)):
        hessian[index] = (gradient(at + step) - gradient(at - step)) / (2 * WIDTH)
        yield hessian, index / flat.size
    if not np.all(np.isfinite(hessian)):
        raise ModelError(
            "NUTS and HMC must start where the log posterior is finite and smooth, but its second derivatives there "
            "are not finite: start from another point, such as the mode."
        )
    values, vectors = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    yield np.asarray((vectors / np.maximum(np.abs(values), LARGEST_SD**-2)) @ vectors.T), 1.0
