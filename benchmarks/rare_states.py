"""What importance-weighted windows gain where a state is rare: noise of the gradient, step size, effective draws.

    python benchmarks/rare_states.py --out docs/scale

Two data sets, each with the same windows drawn alike and by importance: a simulation whose third state holds a tenth of
a percent of the times, and the solar X-ray flux of GOES-15 with its flares (read from `--data`, left out if not there).
The simulation is also sampled exactly, by NUTS on all data, so that the gain is seen to cost no bias.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import longhmm as lh
from longhmm.data.sequences import Sequences, open_data
from longhmm.model.hmm import HMM
from longhmm.run.chains import bulk_effective_size
from longhmm.run.request import Request
from longhmm.run.run import CHEAPER, Run, carry_out
from longhmm.samplers.contract import Start
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD, Tuned
from longhmm.target.coordinates import Flat, constrain
from longhmm.target.target import StreamedPosterior

PROJECT = Path(__file__).resolve().parents[1]
GOES = "goes_xrs/goes15_1min.npz"
FLOOR = 2e-8  # W/m²; below are gaps, written as 1e-9, and minutes in which the earth hid the sun
GAP = 60  # minutes
LEVELS = (-7.5, -7.2, -6.8, -6.0, -5.0)  # to begin with
HALF_WIDTH, COUNT = 10, 64
CHAINS, THIN = 4, 10
POINTS, GRADIENTS = 16, 500  # at which the noise is measured, and gradients at each of them


class Case(NamedTuple):
    """Data with a rare state, and where to start."""

    model: HMM
    data: Sequences
    init: dict[str, Any]
    buffer: int


def simulation(length: int) -> Case:
    """Three Gaussian states; the third comes up for ten observations at a time, a tenth of a percent of all."""
    model = lh.HMM(3, lh.Gaussian())
    params = {
        "transition": [[0.98, 0.0199, 1e-4], [0.03, 0.9699, 1e-4], [0.05, 0.05, 0.9]],
        "mean": [0.0, 2.0, 5.0],
        "sd": np.sqrt([1.0, 1.0, 2.0]),
    }
    data = open_data(lh.simulate(model, params, length, seed=0)[1])
    return Case(model.resolve(data), data, params, 40)


def flares(path: Path, minutes: int) -> Case:
    """Five levels of the logarithm of the flux, a quarter of a decade wide, so that flares are levels of their own.

    Missing minutes stay missing, and an hour of them ends a sequence.
    """
    with np.load(path) as stored:
        flux = stored["xl"][:minutes].astype(np.float64)
    logs = np.log10(np.where(flux > FLOOR, flux, np.nan))
    seen = np.flatnonzero(~np.isnan(logs))
    breaks = np.flatnonzero(np.diff(seen) > GAP)
    starts, stops = np.concatenate([seen[:1], seen[breaks + 1]]), np.concatenate([seen[breaks], seen[-1:]]) + 1
    data = open_data([logs[start:stop] for start, stop in zip(starts, stops, strict=True)])
    prior = lh.Sticky(stay=100.0)
    model = lh.HMM(len(LEVELS), lh.Gaussian(sd=0.25), transition_prior=prior).resolve(data)
    leave = np.full((len(LEVELS), len(LEVELS)), 1e-3)
    start = {"transition": leave + np.diag(1.0 - leave.sum(axis=1)), "mean": np.array(LEVELS)}
    fit = lh.fit_em(model, data, init=start, max_iterations=60, progress=False)
    return Case(model, data, fit.params, 64)


def measured_noise(case: Case, found: Tuned) -> np.ndarray:
    """`(P, P)`, the covariance of gradients at points of the posterior, from fresh minibatches."""
    control, factor = found.bind(case.model, case.data, {}), np.asarray(found.factor, np.float64)
    flat = Flat.like(found.mode)
    centre, rng = flat.ravel_numpy(found.mode), np.random.default_rng(1)

    @jax.jit
    def gradients(at: Any, keys: jax.Array) -> jax.Array:
        return jax.lax.map(lambda key: flat.ravel(control.estimate(at, control.minibatch(key)).gradient), keys)

    noise = np.zeros((flat.size, flat.size))
    for point in range(POINTS):
        place = flat.unravel((centre + factor @ rng.normal(size=flat.size)).astype(np.float32))
        at = {name: jnp.asarray(value) for name, value in place.items()}
        keys = jax.random.split(jax.random.key(point), GRADIENTS)
        noise += np.cov(np.asarray(gradients(at, keys), np.float64).T) / POINTS
    return noise


def chains_of(case: Case, found: Tuned, draws: int) -> tuple[np.ndarray, float]:
    """Draws in flat coordinates, and seconds per step of one chain."""
    sampler = ControlVariateSGLD(tuned=found)
    request = Request(case.model, case.data, sampler, chains=CHAINS, draws=draws, thin=THIN)
    began = time.perf_counter()
    chains = carry_out(Run(request, sampler))
    seconds = (time.perf_counter() - began) / (CHAINS * chains.settings["steps"])
    return Flat.like(found.mode).ravel_numpy(chains.coordinates), seconds


def by_windows(case: Case, proposal: lh.Importance | None, draws: int) -> tuple[dict[str, Any], np.ndarray, Tuned]:
    """Noise, step size and effective draws with one way of drawing windows."""
    windows = lh.Windows(HALF_WIDTH, COUNT, proposal)
    start = Start(case.init, windows, lh.FixedBuffer(case.buffer))
    found = ControlVariateSGLD().tune(StreamedPosterior(case.model, case.data), start).found
    noise, factor = measured_noise(case, found), np.asarray(found.factor, np.float64)
    values = np.linalg.eigvalsh(factor.T @ noise @ factor)[::-1]
    flat = Flat.like(found.mode)
    level = flat.unravel(np.arange(flat.size))["mean"][-1]  # of the rarest state, the last one in both cases
    drawn, seconds = chains_of(case, found, draws)
    sizes = bulk_effective_size(drawn)
    steps = CHAINS * draws * THIN
    result = {
        "noise_largest_eigenvalue": float(values[0]),
        "noise_trace": float(values.sum()),
        "noise_eigenvalues": [float(value) for value in values],
        "noise_foreseen": found.noise,
        "noise_rare_level": float(noise[level, level] * np.sum(factor[level] ** 2)),
        "step_size": found.step_size,
        "steps": steps,
        "smallest_effective_size": float(sizes.min()),
        "median_effective_size": float(np.median(sizes)),
        "effective_per_1000_steps": float(1000 * sizes.min() / steps),
        "microseconds_per_step": 1e6 * seconds,
        "effective_per_second": float(sizes.min() / steps / seconds),
    }
    return result, drawn, found


def exact_draws(case: Case, found: Tuned, draws: int) -> np.ndarray:
    """Flat coordinates from NUTS on all data, preconditioned by the curvature at the mode."""
    sampler = ControlVariateSGLD(tuned=found)
    request = Request(case.model, case.data, sampler, chains=CHAINS, draws=draws, thin=1, seed=1)
    chains = carry_out(Run(request, sampler, CHEAPER))
    return Flat.like(found.mode).ravel_numpy(chains.coordinates)


def compared(case: Case, draws: int, exact: int) -> dict[str, Any]:
    """Both ways of drawing windows on one data set, and NUTS where it is asked for."""
    result: dict[str, Any] = {"observations": case.data.length, "states": case.model.n_states, "buffer": case.buffer}
    drawn: dict[str, np.ndarray] = {}
    for name, proposal in (("uniform", None), ("importance", lh.Importance())):
        result[name], drawn[name], found = by_windows(case, proposal, draws)
        print(name, {key: value for key, value in result[name].items() if key != "noise_eigenvalues"}, flush=True)
    params = constrain(case.model, found.mode)
    shares = lh.state_probabilities(case.model, params, case.data).mean(axis=0)
    result["state_shares"] = [float(share) for share in shares]
    uniform, importance = result["uniform"], result["importance"]
    result["gain"] = {
        "noise": uniform["noise_largest_eigenvalue"] / importance["noise_largest_eigenvalue"],
        "noise_trace": uniform["noise_trace"] / importance["noise_trace"],
        "noise_rare_level": uniform["noise_rare_level"] / importance["noise_rare_level"],
        "effective_per_step": importance["effective_per_1000_steps"] / uniform["effective_per_1000_steps"],
        "effective_per_second": importance["effective_per_second"] / uniform["effective_per_second"],
    }
    if exact:
        reference = exact_draws(case, found, exact)
        mean, sd = reference.mean(axis=(0, 1)), reference.std(axis=(0, 1))
        result["against_nuts"] = {"smallest_effective_size": float(bulk_effective_size(reference).min())}
        for name, each in drawn.items():
            ratio = each.std(axis=(0, 1)) / sd
            shift = np.abs(each.mean(axis=(0, 1)) - mean) / sd
            result["against_nuts"][name] = {
                "sd_ratio": [float(ratio.min()), float(ratio.max())],
                "largest_mean_shift_in_sd": float(shift.max()),
            }
        print(result["against_nuts"], flush=True)
    return result


def draw_figure(results: dict[str, Any], path: Path) -> None:
    """Eigenvalues of the noise, largest first, both ways."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = {
        "simulation": "simulation, rare state {share:.2%}",
        "goes": "GOES-15 X-ray flux, highest level {share:.1%}",
    }
    figure, all_axes = plt.subplots(
        1, len(results), figsize=(5 * len(results), 3.6), layout="constrained", squeeze=False
    )
    for axes, (name, result) in zip(all_axes[0], results.items(), strict=True):
        for way, colour in (("uniform", "#D55E00"), ("importance", "#0072B2")):
            values = np.maximum(result[way]["noise_eigenvalues"], 1e-6)
            label = f"{way}: {result[way]['effective_per_1000_steps']:.3g} effective draws per 1000 steps"
            axes.semilogy(np.arange(1, len(values) + 1), values, "o-", markersize=3, color=colour, label=label)
        axes.set(xlabel="direction", ylabel="gradient noise, in posterior information")
        axes.set_title(titles[name].format(share=result["state_shares"][-1]))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=PROJECT / ".." / "shared" / "data", help="folder of recordings")
    parser.add_argument("--cases", nargs="+", choices=("simulation", "goes"), default=["simulation", "goes"])
    parser.add_argument("--length", type=int, default=200_000, help="of the simulation")
    parser.add_argument("--minutes", type=int, default=100_000, help="of the flux")
    parser.add_argument("--draws", type=int, default=500, help="of each chain, ten steps apart")
    parser.add_argument("--exact", type=int, default=500, help="draws of NUTS on the simulation; 0 leaves it out")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for numbers and picture")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "rare_states.json"
    results = json.loads(log.read_text(encoding="utf-8")) if log.is_file() else {}  # of cases that were run before
    if "simulation" in options.cases:
        results["simulation"] = compared(simulation(options.length), options.draws, options.exact)
    if "goes" in options.cases and (options.data / GOES).is_file():
        results["goes"] = compared(flares(options.data / GOES, options.minutes), options.draws, 0)
    elif "goes" in options.cases:
        print(f"no data at {options.data / GOES}; name their folder with --data. The flares are left out.")
    log.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw_figure(results, options.out / "rare_states.png")


if __name__ == "__main__":
    main()
