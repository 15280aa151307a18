"""Speed of exact passes against peers, on the same model and data, in the same run. Answers are compared first.

Ratios matter, not seconds: machines differ and are noisy. Prints a table; `--json` prints one JSON document.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import longhmm as lh

N_STATES, DIM = 8, 2


def problem(length: int) -> tuple[lh.HMM, dict[str, np.ndarray], np.ndarray]:
    """An 8-state 2-D Gaussian model with overlapping states, and data from it."""
    rng = np.random.default_rng(0)
    transition = 0.9 * np.eye(N_STATES) + 0.1 * rng.dirichlet(np.ones(N_STATES), size=N_STATES)
    params = {
        "transition": transition,
        "mean": 3 * rng.normal(size=(N_STATES, DIM)),
        "covariance": np.tile(np.eye(DIM), (N_STATES, 1, 1)),
    }
    model = lh.HMM(N_STATES, lh.Gaussian(dim=DIM))
    return model, params, lh.simulate(model, params, length, seed=1)[1]


def timed(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The best of several runs after a first one that compiles."""
    answer = work()
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        answer = work()
        best = min(best, time.perf_counter() - began)
    return best, answer


def hmmlearn_pass(params: dict[str, np.ndarray], y: np.ndarray) -> Callable[[], float]:
    """One E step of hmmlearn: log likelihood and posteriors."""
    from hmmlearn.hmm import GaussianHMM

    peer = GaussianHMM(N_STATES, covariance_type="full")
    peer.startprob_ = np.full(N_STATES, 1 / N_STATES)
    peer.transmat_, peer.means_, peer.covars_ = params["transition"], params["mean"], params["covariance"]
    wide = y.astype(float)
    return lambda: peer.score_samples(wide)[0]


def dynamax_pass(params: dict[str, np.ndarray], y: np.ndarray) -> Callable[[], float]:
    """The smoother of dynamax."""
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import hmm_smoother
    from jax.scipy.stats import multivariate_normal

    @jax.jit
    def smooth(values: jax.Array) -> jax.Array:
        logs = jnp.stack(
            [
                multivariate_normal.logpdf(values, m, c)
                for m, c in zip(params["mean"], params["covariance"], strict=True)
            ],
            axis=1,
        )
        law = jnp.full(N_STATES, 1 / N_STATES)
        return hmm_smoother(law, jnp.asarray(params["transition"]), logs).marginal_loglik

    return lambda: float(smooth(y))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=200_000, help="observations")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    model, params, y = problem(options.length)
    contenders = {
        "longhmm log likelihood": lambda: lh.log_likelihood(model, params, y),
        "longhmm exact gradient": lambda: lh.gradient(model, params, y, prior=False),
        "hmmlearn posteriors": hmmlearn_pass(params, y),
        "dynamax smoother": dynamax_pass(params, y),
    }
    results = {}
    reference = None
    for name, work in contenders.items():
        seconds, answer = timed(work)
        if isinstance(answer, float):
            reference = answer if reference is None else reference
            if not np.isclose(answer, reference, rtol=1e-4):
                sys.exit(f"{name} disagrees: log likelihood {answer}, expected {reference}.")
        results[name] = seconds / options.length * 1e9
    base = results["longhmm exact gradient"]
    if options.json:
        print(json.dumps({"length": options.length, "ns_per_observation": results}))
        return
    print(f"K = {N_STATES}, {DIM}-D Gaussian, {options.length:,} observations")
    for name, cost in results.items():
        print(f"{name:<26} {cost:>10.0f} ns per observation {cost / base:>8.2f} x the exact gradient")


if __name__ == "__main__":
    main()
