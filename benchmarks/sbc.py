"""Simulation-based calibration in full: ranks of true parameters among draws, for the default and the exact samplers.

Needs JAX, NumPyro and NumPy (NUTS also BlackJAX; it is left out where that is missing). Writes one JSON file per
method and model to --out. `benchmarks/report.py` draws the picture from them.

    python benchmarks/sbc.py --workers 2 --replications 200 --out docs/calibration
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
LENGTHS = {"default": 5000, "Gibbs": 500, "NUTS": 500}


def model_of(name: str) -> Any:
    """Priors differ between states, so that their numbers mean something."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    if name == "poisson2":
        rate = dist.Gamma(np.array([20.0, 80.0]), 10.0)
        return lh.HMM(2, lh.Poisson(rate=rate), transition_prior=[[18.0, 2.0], [4.0, 16.0]])
    emission = lh.Emission(
        dist.Normal, loc=dist.Normal(np.array([-2.0, 0.0, 2.5]), 0.3), scale=dist.LogNormal(0.0, 0.2)
    )
    return lh.HMM(3, emission, transition_prior=[[12.0, 1.0, 1.0], [1.0, 8.0, 1.0], [0.5, 1.0, 8.0]])


def method_of(name: str) -> Any:
    import longhmm as lh
    from longhmm.calibration import by_sampler

    if name == "default":
        return by_sampler(lh.ControlVariateSGLD(), chains=2, draws=200)
    if name == "Gibbs":
        return by_sampler(lh.Gibbs(), chains=1, draws=990, warmup=100)
    return by_sampler(lh.NUTS(adaptation_steps=200), chains=1, draws=198, warmup=10)


def part(job: tuple[str, str, int, int]) -> dict[str, Any]:
    """Some of the replications, in a process of its own."""
    from longhmm.calibration import simulated_ranks

    method, model, replications, seed = job
    found = simulated_ranks(
        model_of(model), method_of(method), length=LENGTHS[method], replications=replications, seed=seed
    )
    return {**found._asdict(), "ranks": found.ranks.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--methods", default="default,Gibbs,NUTS")
    parser.add_argument("--models", default="poisson2,normal3")
    parser.add_argument("--out", default="docs/calibration")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    import numpy as np

    from longhmm.calibration import Ranks

    place = Path(options.out)
    place.mkdir(parents=True, exist_ok=True)
    for method in options.methods.split(","):
        if method == "NUTS" and importlib.util.find_spec("blackjax") is None:
            print("NUTS is left out: BlackJAX is not installed.", flush=True)
            continue
        for model in options.models.split(","):
            began = time.perf_counter()
            each = -(-options.replications // options.workers)
            jobs = [(method, model, each, worker) for worker in range(options.workers)]
            with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
                parts = pool.map(part, jobs, chunksize=1)
            ranks = np.concatenate([np.array(one["ranks"]) for one in parts])
            failed = [text for one in parts for text in one["failed"]]
            found = Ranks(tuple(parts[0]["names"]), ranks, parts[0]["draws"], tuple(failed))
            result = {
                "method": method,
                "model": model,
                "length": LENGTHS[method],
                "names": list(found.names),
                "draws": found.draws,
                "replications": len(ranks),
                "failed": failed,
                "p_values": found.p_values().tolist(),
                "widths": found.widths().tolist(),
                "right": found.right(),
                "counts": found.counts().tolist(),
                "seconds": time.perf_counter() - began,
            }
            (place / f"sbc-{method}-{model}.json").write_text(json.dumps(result, indent=1) + "\n")
            least = min(result["p_values"])
            print(
                f"{method} {model}: {len(ranks)} data sets, smallest p {least:.3f}, right: {result['right']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
