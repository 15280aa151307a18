"""Simulation-based calibration in full: ranks of true parameters, and of what follows from them, among draws.

Needs JAX, NumPyro and NumPy (NUTS also BlackJAX; it is left out where that is missing). Writes one JSON file per
method and model to --out. `benchmarks/report.py` draws the picture from them.

    python benchmarks/sbc.py --workers 2 --replications 1000 --out docs/calibration
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
LENGTHS = {"default": 5000, "Gibbs": 300, "NUTS": 300}
MODELS = ("gaussian3", "poisson2", "lognormal2", "rare2")
CHUNK = 125  # data sets that one process does in a row


def model_of(name: str) -> Any:
    """Priors are proper, and differ between states, so that their numbers mean something."""
    import numpy as np
    import numpyro.distributions as dist

    import longhmm as lh

    if name == "poisson2":
        rate = dist.Gamma(np.array([20.0, 80.0]), 10.0)
        return lh.HMM(2, lh.Poisson(rate=rate), transition_prior=[[18.0, 2.0], [4.0, 16.0]])
    if name == "lognormal2":
        emission = lh.LogNormal(loc=dist.Normal(np.array([0.0, 2.0]), 0.2), scale=dist.LogNormal(-0.5, 0.2))
        return lh.HMM(2, emission, transition_prior=[[18.0, 2.0], [4.0, 16.0]])
    if name == "rare2":  # about ten transitions in a data set of the default's length, one in one of the others'
        rate = dist.Gamma(np.array([20.0, 80.0]), 10.0)
        return lh.HMM(2, lh.Poisson(rate=rate), transition_prior=[[1000.0, 1.0], [1.0, 500.0]])
    emission = lh.Gaussian(mean=dist.Normal(np.array([-2.0, 0.0, 2.5]), 0.3), sd=dist.LogNormal(0.0, 0.2))
    return lh.HMM(3, emission, transition_prior=[[12.0, 1.0, 1.0], [1.0, 8.0, 1.0], [0.5, 1.0, 8.0]])


def method_of(name: str) -> Any:
    from ranks import by_sampler

    import longhmm as lh

    if name == "default":
        return by_sampler(lh.ControlVariateSGLD(), chains=2, draws=200)
    if name == "Gibbs":
        return by_sampler(lh.Gibbs(), chains=1, draws=990, warmup=50)
    return by_sampler(lh.NUTS(adaptation_steps=150), chains=1, draws=198, warmup=10)


def part(job: tuple[str, str, int, int]) -> dict[str, Any]:
    """Some of the replications."""
    from ranks import simulated_ranks

    from longhmm.run.compilation import cached_compilation

    method, model, replications, seed = job
    began = time.perf_counter()
    with cached_compilation():  # what one process compiled the others need not
        found = simulated_ranks(
            model_of(model), method_of(method), length=LENGTHS[method], replications=replications, seed=seed
        )
    seconds = time.perf_counter() - began
    return {**found._asdict(), "method": method, "model": model, "ranks": found.ranks.tolist(), "seconds": seconds}


def written(method: str, model: str, parts: list[dict[str, Any]], place: Path) -> None:
    """All parts of one method and model, in one file."""
    import numpy as np
    from ranks import Ranks

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
        "below": found.below().tolist(),
        "seconds": sum(one["seconds"] for one in parts),
    }
    (place / f"sbc-{method}-{model}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{method} {model}: {len(ranks)} data sets, {len(failed)} failed, smallest p {min(result['p_values']):.4f} of "
        f"{len(found.names)}, right: {result['right']}, {result['seconds']:.0f} s of one core",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--methods", default="default,Gibbs,NUTS")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--out", default="docs/calibration")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    os.environ.setdefault("LONGHMM_THREADS", "1")
    place = Path(options.out)
    place.mkdir(parents=True, exist_ok=True)
    methods = options.methods.split(",")
    if "NUTS" in methods and importlib.util.find_spec("blackjax") is None:
        print("NUTS is left out: BlackJAX is not installed.", flush=True)
        methods.remove("NUTS")
    each, wanted = min(CHUNK, -(-options.replications // options.workers)), options.replications
    jobs = [
        (method, model, min(each, wanted - first), first)
        for method in methods
        for model in options.models.split(",")
        for first in range(0, wanted, each)
    ]
    parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for one in pool.imap_unordered(part, jobs, chunksize=1):
            mine = parts.setdefault((one["method"], one["model"]), [])
            mine.append(one)
            if len(mine) == -(-wanted // each):
                written(one["method"], one["model"], mine, place)


if __name__ == "__main__":
    main()
