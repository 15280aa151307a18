"""The default posterior of 20 million observations against the exact one.

The default pipeline runs on the CPU, as it would on a laptop. The exact draws come from Hamiltonian Monte Carlo on all
data, by the log posterior and the gradient of the full pass (on a GPU where there is one). A trajectory that uses
another field than the exact gradient is still reversible and keeps volumes, so that gradients in single precision cost
acceptance and not exactness. Needs only JAX, NumPyro and NumPy.

    python benchmarks/at_scale.py --cases rc,dd,scheme --length 20000000 --seconds 300 --out docs/calibration
"""

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from calibration import compare, natural

STEP = 0.35  # in whitened coordinates, where every posterior sd is about one
LEAPFROGS = (4, 10)  # at random from here to below there: short and long ways, so that no coordinate comes round
BURN_IN = 30
SEED = 21


def scheme() -> tuple[Any, dict[str, Any]]:
    """Six states in a row, with ten rates from 0.5 to 5 per second, each state at its own level."""
    import longhmm as lh

    moves = lh.Rates("1 <-> 2 <-> 3 <-> 4 <-> 5 <-> 6", dt=0.01)
    rates = [2.0, 1.0, 4.0, 0.5, 3.0, 5.0, 1.5, 2.5, 0.8, 1.2]
    levels = {"mean": np.arange(6.0), "sd": np.array([0.5, 0.4, 0.6, 0.5, 0.45, 0.55])}
    return lh.HMM(6, lh.Gaussian(), transitions=moves), {"rates": rates, **levels}


def data_of(name: str, length: int) -> tuple[Any, Any]:
    """The resolved model and its data, `scheme`, or `dd` or `rc` of the paper; the same in every process."""
    import longhmm as lh
    from longhmm_reproduction import models

    model, params = scheme() if name == "scheme" else getattr(models, name)()
    sequences = lh.open_data(np.asarray(lh.simulate(model, params, length, seed=SEED)[1], np.float32))
    return model.resolve(sequences), sequences


def default_draws(job: tuple[str, int]) -> dict[str, Any]:
    """In a process of its own, on the CPU: tuning, draws, and their cost."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from longhmm.run.request import Request
    from longhmm.run.run import Run, carry_out
    from longhmm.samplers.contract import Start
    from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
    from longhmm.target.target import StreamedPosterior

    model, sequences = data_of(*job)
    began = time.perf_counter()
    sampler = ControlVariateSGLD().tune(StreamedPosterior(model, sequences), Start(seed=5))
    tuned, found = time.perf_counter() - began, sampler.found
    chains = carry_out(Run(Request(model, sequences, sampler, seed=5, spaced=True), sampler))
    return {
        "coordinates": chains.coordinates,
        "centre": found.mode,
        "factor": np.asarray(found.factor, np.float64),
        "settings": chains.settings,
        "tuning_seconds": tuned,
        "seconds": time.perf_counter() - began,
    }


def exact_draws(
    model: Any, sequences: Any, centre: dict[str, np.ndarray], factor: np.ndarray, seconds: float, seed: int
) -> tuple[np.ndarray, dict[str, float]]:
    """Whitened draws `(draw, P)` for so many seconds, and the rate of acceptance."""
    from longhmm.target.coordinates import Flat, constrain
    from longhmm.target.target import exact

    flat = Flat.like(centre)
    home = flat.ravel_numpy(centre)

    def posterior(z: np.ndarray) -> tuple[float, np.ndarray]:
        params = constrain(model, flat.unravel(home + factor @ z))
        value, estimate = exact(model, model.validate(params), sequences)
        return value, np.asarray(factor.T @ flat.ravel_numpy(estimate.gradient))

    rng = np.random.default_rng(seed)
    z = rng.normal(size=flat.size)
    here, gradient = posterior(z)
    draws, accepted, errors = [], [], []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        momentum = rng.normal(size=flat.size)
        step = STEP * rng.uniform(0.8, 1.2)
        place, push, field = z, momentum, gradient
        for _ in range(rng.integers(*LEAPFROGS)):
            push = push + 0.5 * step * field
            place = place + step * push
            there, field = posterior(place)
            push = push + 0.5 * step * field
        gain = there - here - 0.5 * (push @ push - momentum @ momentum)
        took = np.log(rng.uniform()) < gain
        accepted.append(took)
        errors.append(min(abs(gain), 10.0))
        if took:
            z, here, gradient = place, there, field
        draws.append(z)
    return np.array(draws)[BURN_IN:], {"acceptance": float(np.mean(accepted)), "energy_error": float(np.mean(errors))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="rc,dd,scheme")
    parser.add_argument("--length", type=int, default=20_000_000)
    parser.add_argument("--seconds", type=float, default=300.0, help="time for the exact draws of each case")
    parser.add_argument("--out", default="docs/calibration")
    options = parser.parse_args()
    place = Path(options.out)
    place.mkdir(parents=True, exist_ok=True)
    import jax

    for name in options.cases.split(","):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            made = pool.map(default_draws, [(name, options.length)])[0]
        model, sequences = data_of(name, options.length)
        draws, told = exact_draws(model, sequences, made["centre"], made["factor"], options.seconds, 1)
        from longhmm.target.coordinates import Flat

        flat = Flat.like(made["centre"])
        exact = flat.unravel(flat.ravel_numpy(made["centre"]) + draws[None] @ made["factor"].T)
        result = {
            "case": name,
            "length": options.length,
            "device": str(jax.devices()[0].device_kind),
            "processors": os.cpu_count(),
            "tuning_seconds": made["tuning_seconds"],
            "seconds": made["seconds"],
            "exact_seconds": options.seconds,
            "exact_draws": len(draws),
            **told,
            "settings": made["settings"],
            "rows": compare(natural(model, made["coordinates"]), natural(model, exact)),
        }
        (place / f"at-scale-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(name, {key: result[key] for key in ("seconds", "exact_draws", "acceptance", "energy_error")}, flush=True)


if __name__ == "__main__":
    main()
