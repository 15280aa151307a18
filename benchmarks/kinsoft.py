"""The three levels of the kinSoft challenge (Goetz et al., Nat. Commun. 13:5402, 2022) beside what was published.

    python benchmarks/kinsoft.py 1 --data ../shared/data/kinsoft

Prints the table of rates with 90 % intervals, what compares the models of a level, and the seconds that it took. The
traces are not part of the project: `level1.npz` and so on hold `efficiency`, `lengths` and `dt`.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import longhmm as lh

PUBLISHED = {
    1: {"1 -> 2": 0.15, "2 -> 1": 0.22},
    3: {"1 -> 2": 0.053, "1 -> 4": 0.018, "2 -> 1": 0.080, "2 -> 3": 0.250, "3 -> 2": 0.680, "4 -> 1": 0.032},
}
MAGNITUDES = (0.05, 0.16, 0.30, 0.37, 0.38, 0.45)  # of level 2, whose order is not
CYCLE, BRANCHES = "1 <-> 2 <-> 3, 1 <-> 3", "4 <-> 1 <-> 2 <-> 3"


def models(level: int, dt: float) -> dict[str, lh.HMM]:
    """The models of a level, the one whose rates are printed first."""

    def tied(scheme: str, levels: tuple[int, ...]) -> lh.HMM:
        moves = lh.Rates(scheme, dt=dt)
        return lh.HMM(len(levels), lh.Tied(lh.Gaussian(), levels), transitions=moves, initial="stationary")

    def free(scheme: str, emission: Any) -> lh.HMM:
        moves = lh.Rates(scheme, dt=dt)
        return lh.HMM(moves.n_states, emission, transitions=moves, initial="stationary")

    if level == 1:
        return {"plain": free("1 <-> 2", lh.Gaussian())}
    if level == 2:
        return {"averaged": free(CYCLE, lh.FrameAverage(substeps=6)), "plain": free(CYCLE, lh.Gaussian())}
    return {
        "4 - 1 - 2 - 3, low 1 2": tied(BRANCHES, (0, 0, 1, 1)),
        "2 states": tied("1 <-> 2", (0, 1)),
        "3 states, low 1 2": tied("1 <-> 2 <-> 3", (0, 0, 1)),
        "3 states, high 2 3": tied("1 <-> 2 <-> 3", (0, 1, 1)),
        "4 - 1 - 2 - 3, low 1 3": tied(BRANCHES, (0, 1, 0, 1)),
        "4 - 1 - 2 - 3, low 1 4": tied(BRANCHES, (0, 1, 1, 0)),
    }


def published(level: int, found: np.ndarray) -> np.ndarray:
    """The published rate of every step, in the order of the states that suits what was found best."""
    if level == 2:
        return np.sort(MAGNITUDES)[np.argsort(np.argsort(found))]
    moves = next(iter(models(level, 1.0).values())).transitions
    right = np.array([PUBLISHED[level][step] for step in moves.terms])
    orders = [moves.renumbered(right, np.array(order)) for order in moves.symmetries]
    return min(orders, key=lambda each: float(np.sum(np.log(each / found) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("level", type=int, choices=(1, 2, 3))
    parser.add_argument("--data", type=Path, default=Path("../shared/data/kinsoft"))
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="rank all models of the level on a fifth of the traces")
    options = parser.parse_args()
    with np.load(options.data / f"level{options.level}.npz") as stored:
        traces = np.split(stored["efficiency"], np.cumsum(stored["lengths"])[:-1])
        dt = float(stored["dt"])
    every = models(options.level, dt)

    def fit(model: lh.HMM, data: Any) -> lh.Posterior:
        return lh.sample(model, data, draws=options.draws, seed=options.seed, progress=False, verdict=False)

    began = time.perf_counter()
    name, model = next(iter(every.items()))
    posterior = fit(model, traces)
    table = posterior.rates()
    table["published"] = published(options.level, table["mean"].to_numpy())
    table["ratio"] = table["mean"] / table["published"]
    table["inside"] = (table["low"] <= table["published"]) & (table["published"] <= table["high"])
    print(f"level {options.level}, {name}: {time.perf_counter() - began:.0f} s, by {posterior.settings.get('sampler')}")
    print(table.to_string(index=False, float_format="%.4f"))
    print({each: np.round(posterior.mean_params()[each], 4).tolist() for each in ("mean", "sd")})
    if options.level == 2:
        plain = fit(every["plain"], traces)
        both = [lh.log_likelihood(each.model, each.mean_params(), traces) for each in (posterior, plain)]
        gap = both[0] - both[1]
        print(f"averaging over frames is better by {gap:,.0f} log units; {time.perf_counter() - began:.0f} s")
        print(plain.rates().to_string(index=False, float_format="%.4f"))
    if options.compare:
        began = time.perf_counter()
        print(lh.compare(every, traces, held_out=0.2, fit=fit).to_string(float_format="%.2f"))
        print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
