"""What users wait for, in one table with the aims beside: whole fits, each in a process of its own; ratios of passes by
processor time; peers in the same run; what `gpu.py` last measured on a GPU. The load of the machine is recorded at the
beginning and the end.

    python benchmarks/aims.py [--only fits passes answers peers long gpu] [--out docs/speed]

Each group runs in a process of its own, since some are measured on one thread. `long` needs the longhmm_reproduction
package. Writes `aims.json`, which `speed_page.py` puts on the page; `make bench` runs both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

THREE = ("StudentT", "Gamma", "NegativeBinomial", "VonMises", "GaussianMixture", "Product", "AR(1)", "AR(4)")
PEERS = {"dynamax value and gradient": 158.0, "dynamax E step": 32.0, "hmmlearn EM iteration": 190.0}
PEER_ROWS = 100_000  # what peers cost is linear in the rows
CATEGORIES, LONGEST = 4_900_000, 20_000_000


class Row(NamedTuple):
    """One line: what was measured, its unit, and the aim, which is a most unless it is a least."""

    what: str
    measured: float
    unit: str
    aim: float
    least: bool = False

    @property
    def reached(self) -> bool:
        return self.measured >= self.aim if self.least else self.measured <= self.aim


# --- whole fits: what runs in a process of its own --------------------------------------------------------------------

CHILD = """
import json, logging, re, sys, time
import jax
import numpy as np
import longhmm as lh
sys.path.insert(0, {folder!r})
import aims

found = re.compile("Finished XLA compilation of jit")
names = []

class Count(logging.Handler):
    def emit(self, record):
        names.extend(found.findall(record.getMessage()))

log = logging.getLogger("jax")
log.addHandler(Count())
log.propagate = False
told = []
for model, data in aims.{work}():
    jax.config.update("jax_log_compiles", True)
    before, began = len(names), time.perf_counter()
    posterior = lh.sample(model, data, seed=1)
    told.append((time.perf_counter() - began, len(names) - before, posterior.verdict.kind))
print("TOLD " + json.dumps(told))
"""


def two_gaussians() -> Iterator[tuple[Any, Any]]:
    import longhmm as lh

    model = lh.HMM(2, lh.Gaussian())
    params = {"transition": [[0.95, 0.05], [0.1, 0.9]], "mean": [-1.0, 1.0], "sd": [0.5, 0.5]}
    yield model, np.asarray(lh.simulate(model, params, 10_000, seed=0)[1])


def three_poissons() -> Iterator[tuple[Any, Any]]:
    """Three data sets of one shape."""
    import longhmm as lh

    model = lh.HMM(3, lh.Poisson())
    params = {"transition": 0.9 * np.eye(3) + 0.1 / 3, "rate": [1.0, 5.0, 12.0]}
    for seed in range(3):
        yield model, lh.simulate(model, params, 20_000, seed=seed)[1]


def categories() -> Iterator[tuple[Any, Any]]:
    import longhmm as lh

    model = lh.HMM(2, lh.Categorical(4))
    params = {"transition": [[0.999, 0.001], [0.002, 0.998]], "probs": [[0.3, 0.2, 0.2, 0.3], [0.2, 0.3, 0.3, 0.2]]}
    yield model, lh.simulate(model, params, CATEGORIES, seed=3)[1]


def _cycles(length: int, file: bool = False) -> Iterator[tuple[Any, Any]]:
    import longhmm as lh
    from longhmm_reproduction import models

    model, params = models.rc()
    y = np.asarray(lh.simulate(model, params, length, seed=3)[1], np.float32)
    if not file:
        yield model, y
        return
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", y)
        del y
        yield model, f"{folder}/rows.npy"


def cycles() -> Iterator[tuple[Any, Any]]:
    yield from _cycles(100_000)


def long_cycles() -> Iterator[tuple[Any, Any]]:
    yield from _cycles(LONGEST)


def long_cycles_from_a_path() -> Iterator[tuple[Any, Any]]:
    yield from _cycles(LONGEST, file=True)


def fitted(work: str, cache: str | None = None) -> list[tuple[float, int, str]]:
    """Seconds, programs and verdict of each fit of `work`, in a new process; what it imports does not count."""
    environment = {**os.environ, "LONGHMM_COMPILATION_CACHE": cache or "0"}
    script = CHILD.format(folder=str(Path(__file__).parent), work=work)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{work} failed: {done.stderr[-2000:]}")
    told = next(line for line in done.stdout.splitlines() if line.startswith("TOLD "))
    found: list[tuple[float, int, str]] = json.loads(told.removeprefix("TOLD "))
    print(f"  {work}: " + "; ".join(f"{s:.1f} s, {n} programs, {kind}" for s, n, kind in found), flush=True)
    return found


def fits() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as cache:
        empty, full = (fitted("two_gaussians", cache)[0] for _ in range(2))
        again = fitted("three_poissons", cache)
    yield Row("programs of a first fit, 2 Gaussian states, T = 10,000", empty[1], "", 20)
    yield Row("the same, no program on disk", empty[0], "s", 10)
    yield Row("the same, another process, programs on disk", full[0], "s", 5)
    yield Row("programs of a refit, 3 Poisson states, T = 20,000", again[2][1], "", 0)
    yield Row("the refit itself", again[2][0], "s", 1.5)
    yield Row(f"{CATEGORIES / 1e6:.1f} million categories, 2 states, to a verdict", fitted("categories")[0][0], "s", 20)
    yield Row("reversed cycles, K = 8, T = 1e5", fitted("cycles")[0][0], "s", 12)


def long() -> Iterator[Row]:
    array, path = (fitted(work)[0][0] for work in ("long_cycles", "long_cycles_from_a_path"))
    yield Row("reversed cycles, T = 2e7, from an array", array, "s", 30)
    yield Row("the same from a path, over the array", path / array, "x", 1.3)


# --- ratios of passes -------------------------------------------------------------------------------------------------


def passes(rows: int = 400_000) -> Iterator[Row]:
    """The largest ratio over 2 and 8 states of the gradient, and, for covariates, over more of them and over all
    answers, by processor time of one thread."""
    import cliffs

    worst: dict[str, float] = {}

    def ratio(key: str, own: float, against: float) -> None:
        worst[key] = max(worst.get(key, 0.0), own / against)

    for n in (2, 8):
        problems = cliffs.problems(n, rows)
        for name, problem in problems.items():
            with tempfile.TemporaryDirectory() as folder:
                data = dict(cliffs.forms(problem, Path(folder)))
                like = problems[problem.like]
                given = [(*like[:2], like.rows), *((*problem[:2], each) for each in data.values())]
                # In turns, since the machine may be slower a second later.
                against, *found = cliffs.costs([partial(cliffs.lh.gradient, *each) for each in given], rows, 21)
                for form, own in zip(data, found, strict=True):
                    ratio(*(name, own, against) if form == "array" else (form, own, found[0]))
    for n in (2, 3, 4, 5, 6, 8):
        for name, given in cliffs.with_covariates(n, rows).items():
            for call in cliffs.ANSWERS.values():
                ratio(name, *cliffs.costs([partial(call, *each) for each in given], rows, 21))
    for name in THREE:
        yield Row(f"{name} over the Gaussian of the same width", worst[name], "x", 3)
    yield Row("a density of one's own over the Gaussian", worst["Laplace, own"], "x", 5)
    yield Row("a path over the same rows as an array, any family", worst["path"], "x", 1.2)
    yield Row("one number missing over none, any family", worst["one missing"], "x", 1.2)
    for name in ("covariates, 16 rows", "covariates, 32 rows", "covariates"):
        words = f"{name} over constant transitions, any answer, 2 to 8 states"
        yield Row(words.replace(" rows", " distinct rows"), worst[name], "x", cliffs.AIMS[name])


def answers(rows: int = 1_000_000, draws: int = 5) -> Iterator[Row]:
    """Answers of a posterior, for each draw, over the same pass at given parameters."""
    import longhmm as lh
    from longhmm.posterior.diagnostics.observations import residuals
    from run import problem, taking_turns

    model, params, y = problem(rows)
    posterior = lh.sample(model, y[:20_000], init=params, draws=100, progress=False)
    opened = posterior.model.opened(y)
    works: dict[str, Callable[[], Any]] = {
        "pass": lambda: lh.state_probabilities(posterior.model, params, opened),
        "posterior.state_probabilities": lambda: posterior.state_probabilities(opened, draws=draws),
        "posterior.score": lambda: posterior.score(opened, draws=draws),
        "residuals": lambda: residuals(posterior.model, posterior.centre, opened, most=rows),
    }
    for work in works.values():
        work()  # compiles
    seconds = taking_turns(works, rounds=9)
    base = seconds.pop("pass")
    for name, cost in seconds.items():
        yield Row(
            f"{name}, a draw, over lh.state_probabilities",
            cost / base / (1 if name == "residuals" else draws),
            "x",
            1.3,
        )


def peers() -> Iterator[Row]:
    from run import against_peers

    costs = against_peers(4_000_000, PEER_ROWS)
    for name, aim in PEERS.items():
        yield Row(
            f"{name} over lh.gradient, 4 million rows", costs[name] / costs["longhmm gradient"], "x", aim, least=True
        )
    costs = against_peers(400_000, PEER_ROWS)
    name = "dynamax value and gradient"
    yield Row(f"{name} over lh.gradient, 400,000 rows", costs[name] / costs["longhmm gradient"], "x", 100, least=True)


def gpu(place: Path = Path("docs/speed/gpu.json")) -> Iterator[Row]:
    """From the last run on a GPU."""
    found = json.loads(place.read_text(encoding="utf-8"))
    timed = sorted((one for one in found["results"] if "ms" in one), key=lambda one: -one["ms"])
    best = {one["name"].split(" chunk=")[0]: one for one in timed}  # the last of a name, the fastest
    kernel = {n: best[f"pallas full gradient K={n}"] for n in (8, 16, 32)}
    rows = f"{found['device']}, {found['rows'] / 1e6:.0f} million rows"
    for n in (8, 16):
        own = best[f"public gradient K={n}"]["ms"]
        yield Row(
            f"{rows}: lh.gradient over its kernel among several in a row, K = {n}", own / kernel[n]["ms"], "x", 1.5
        )
        yield Row(f"{rows}: the same over one kernel waited for, K = {n}", own / kernel[n]["ms_alone"], "x", 1.5)
    for n in (16, 32):
        pairs = kernel[n]["ms"] / kernel[8]["ms"] / (n / 8) ** 2
        yield Row(f"{rows}: K = {n} over K = 8, by pair of states", pairs, "x", 3)


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "fits": fits, "passes": passes, "answers": answers, "peers": peers, "long": long, "gpu": gpu,
}  # fmt: skip


def measured(name: str) -> list[Row]:
    """The rows of a group, from a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--rows-of", name], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{name} failed.")
    *told, last = done.stdout.splitlines()
    print("\n".join(told), flush=True)
    return [Row(**row) for row in json.loads(last)]


def lines(rows: list[Row]) -> Iterator[str]:
    """The table, as Markdown."""
    yield "| what | measured | aim | |"
    yield "|---|---|---|---|"
    for row in rows:
        digits = 0 if row.unit == "" else 1 if row.unit == "s" or row.measured >= 20 else 2
        bound = "at least" if row.least else "at most"
        said = "reached" if row.reached else "**missed**"
        yield f"| {row.what} | {row.measured:.{digits}f} {row.unit} | {bound} {row.aim:g} {row.unit} | {said} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--out", type=Path, default=Path("docs/speed"))
    parser.add_argument("--rows-of", choices=list(GROUPS), help="measure one group here, and end with its rows as JSON")
    asked = parser.parse_args()
    if asked.rows_of:
        print(json.dumps([row._asdict() for row in GROUPS[asked.rows_of]()]))
        return
    busy = [os.getloadavg()[0]]
    rows = [row for name in asked.only for row in measured(name)]
    busy.append(os.getloadavg()[0])
    print("\n".join(lines(rows)))
    print(f"{sum(not row.reached for row in rows)} of {len(rows)} miss their aim.")
    if asked.only == list(GROUPS):
        found = {"rows": [row._asdict() for row in rows], "load": busy, "cores": os.cpu_count()}
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "aims.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
