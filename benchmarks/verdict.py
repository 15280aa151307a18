"""How often the verdict is wrong: many data sets through the whole default pipeline, right models and troubled ones.

    python benchmarks/verdict.py --workers 12 --right 1000 --each 20 --limit 600 --budget 7200 --out docs/verdict
    python benchmarks/verdict.py --page docs/verdict.md --out docs/verdict

For right models: how often each reason for distrust appears. For troubles: how often they are seen, beside how far the
answers really are from the truth: the root mean square of (posterior mean - truth) / posterior sd over parameters and
data sets, 1 if intervals are honest.

The first command adds a line to `trials.jsonl` for every fit, in rounds over all cases, and does not repeat what is
there already: it can be stopped and called again. A fit that takes longer than `--limit` is ended and counted as such;
after `--budget` seconds no more are begun. The second makes tables of all `*.jsonl` in the folder.
"""

import argparse
import json
import multiprocessing
import os
import re
import time
from collections import Counter
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
REASONS = {  # what a reason is known by
    "correlated": "are correlated",
    "distribution": "not distributed as",
    "tails": "lie beyond",
    "levels": "has one level for all",
    "spread": "spread differently",
    "shape": "skewness|kurtosis|are cut off",
    "dwell times": "do not last as",
    "transitions": "transition\\[.*(changes|differs)",
    "scatter": "scatter more",
}
LONG = re.compile("1,000,000|8 states|too many")
CHUNK = 12  # trials of one case that a worker does in a row: fits of one shape share compiled programs
RENEWED = 12  # chunks after which a worker starts afresh, without what its programs hold


def judged(trial: Any) -> dict[str, Any]:
    """What the verdict says of one trial, and how far the answers are from the truth."""
    import numpy as np

    import longhmm as lh
    from longhmm.posterior.posterior import Posterior
    from longhmm.run.chains import Chains

    posterior = lh.sample(trial.model, trial.data, progress=False, **(trial.options or {}))
    if trial.spoil is not None:
        shift, factor = trial.spoil
        moved = {}
        for name, value in posterior.coordinates.items():
            mean, sd = value.mean(axis=(0, 1)), value.std(axis=(0, 1))
            moved[name] = mean + shift * sd + factor * (value - mean)
        sequences = lh.open_data(trial.data)
        posterior = Posterior.from_chains(trial.model, Chains(moved, {}, {}, None, None, ()), sequences)
    verdict = posterior.diagnose(trial.data)
    kinds = [name for name, text in REASONS.items() if re.search(text, verdict.reason)]
    wrong = []
    for name, truth in trial.truth.items():
        if name in posterior.draws:
            draws = posterior.draws[name]
            sd = np.asarray(draws.std(("chain", "draw")))
            off = np.asarray(draws.mean(("chain", "draw"))) - np.asarray(truth)
            wrong.append((off[sd > 0] / sd[sd > 0]).ravel())
    z = np.concatenate(wrong) if wrong else np.zeros(0)
    return {
        "kind": verdict.kind,
        "kinds": kinds,
        "reason": verdict.reason,
        "z2": float(np.mean(z**2)) if z.size else None,
    }


Job = tuple[str, str | None, int]  # a case and the number of its data set


def trial(job: Job) -> dict[str, Any]:
    import numpy as np
    from verdict_cases import right_cases, trouble_cases

    name, strength, number = job
    case = next(each for each in (*right_cases(), *trouble_cases()) if (each.name, each.strength) == (name, strength))
    try:
        return judged(case.make(np.random.default_rng([number, *map(ord, name + str(strength))])))
    except Exception as failed:
        return {"kind": "failed", "kinds": [], "reason": f"{type(failed).__name__}: {failed}", "z2": None}


def work(pipe: Connection) -> None:
    """Answer one job after another."""
    for job in iter(pipe.recv, None):
        pipe.send(trial(job))


class Worker:
    """A process with the rest of its chunk."""

    def __init__(self, context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs,), daemon=True)
        self.process.start()
        self.chunks, self.left, self.began = 0, [], 0.0

    def begin(self) -> None:
        self.began = time.perf_counter()
        self.pipe.send(self.left[0])

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def planned(options: argparse.Namespace, known: set[Job]) -> list[list[Job]]:
    """Chunks, in rounds over all cases; within a round the longest first, so that none is left over at the end."""
    from verdict_cases import right_cases, trouble_cases

    models, chunks = list(right_cases()), []
    for case in (*models, *trouble_cases()):
        if options.only and not re.search(options.only, case.name):
            continue
        count = -(-options.right // len(models)) if case.strength is None else options.each
        jobs = [(case.name, case.strength, options.first + each) for each in range(count)]
        chunks += [(i, not LONG.search(case.name), jobs[i : i + CHUNK]) for i in range(0, count, CHUNK)]
    left = [[job for job in jobs if job not in known] for *_, jobs in sorted(chunks, key=lambda each: each[:2])]
    return [jobs for jobs in left if jobs]


def run(options: argparse.Namespace) -> None:
    place, context = Path(options.out), multiprocessing.get_context("spawn")
    place.mkdir(parents=True, exist_ok=True)
    todo = planned(options, {(one["name"], one["strength"], one["number"]) for one in trials(place)})
    began, done, total = time.perf_counter(), 0, sum(map(len, todo))
    workers: list[Worker] = []
    with open(place / "trials.jsonl", "a", encoding="utf-8") as file:
        while True:
            if time.perf_counter() - began > options.budget:
                todo = []
            while todo and len(workers) < options.workers:
                workers.append(Worker(context))
            for worker in [each for each in workers if not each.left]:
                if not todo or worker.chunks == RENEWED:
                    worker.end()
                    workers.remove(worker)
                    continue
                worker.left, worker.chunks = todo.pop(0), worker.chunks + 1
                worker.begin()
            if not workers:
                if todo:
                    continue
                break
            wait([each.pipe for each in workers], timeout=1.0)
            for worker in list(workers):
                seconds = time.perf_counter() - worker.began
                try:
                    one = worker.pipe.recv() if worker.pipe.poll() else None
                except EOFError:
                    one = {"kind": "failed", "kinds": [], "reason": "the process ended", "z2": None}
                if one is None and seconds > options.limit:
                    one = {"kind": "timed out", "kinds": [], "reason": f"after {seconds:.0f} s", "z2": None}
                if one is None:
                    continue
                name, strength, number = worker.left.pop(0)
                line = {"name": name, "strength": strength, "number": number, **one, "seconds": seconds}
                file.write(json.dumps(line) + "\n")
                file.flush()
                done += 1
                spent = time.perf_counter() - began
                print(f"{done} of {total}, {spent:.0f} s, {line['kind']}: {name}, {strength}", flush=True)
                if one["reason"] == "the process ended" or one["kind"] == "timed out":
                    worker.end()
                    workers.remove(worker)
                    todo = [jobs for jobs in (worker.left, *todo) if jobs]
                elif worker.left:
                    worker.begin()
    summarise(place)


def trials(place: Path) -> list[dict[str, Any]]:
    """All that were kept, each once."""
    lines = (line for file in sorted(place.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines())
    found = (json.loads(line) for line in lines)
    return list({(one["name"], one["strength"], one["number"]): one for one in found}.values())


def summarise(place: Path) -> list[dict[str, Any]]:
    """`summary.json`, small, from all trials that were kept."""
    cases: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for one in trials(place):
        cases.setdefault((one["name"], one["strength"]), []).append(one)
    rows = []
    for (name, strength), found in cases.items():
        z2 = [one["z2"] for one in found if one["z2"] is not None]
        rows.append({
            "name": name, "strength": strength, "fits": len(found),
            "trust": sum(one["kind"] == "trust" for one in found),
            "kinds": dict(Counter(one["kind"] for one in found)),
            "reasons": {reason: sum(reason in one["kinds"] for one in found) for reason in REASONS},
            "error": (sum(z2) / len(z2)) ** 0.5 if z2 else None,
            "seconds": sum(one["seconds"] for one in found) / len(found),
        })  # fmt: skip
    (place / "summary.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return rows


def tables(rows: list[dict[str, Any]]) -> str:
    """Two tables: right models and troubles."""
    from verdict_cases import right_cases, trouble_cases

    found = {(row["name"], row["strength"]): row for row in rows}
    headings = ["run longer", "biased", "another mode is as good", "timed out", "failed"]
    lines = [
        "| right model | fits | " + " | ".join([*headings, *REASONS]) + " | trust | error of means (sd) |",
        "|---|" + "---|" * (len(headings) + len(REASONS) + 3),
    ]
    total = dict.fromkeys(["fits", *headings, *REASONS, "trust"], 0)
    for case in right_cases():
        row = found.get((case.name, None))
        if row is None:
            continue
        counts = {name: row["kinds"].get(name, 0) for name in headings} | row["reasons"]
        counts = {"fits": row["fits"], **counts, "trust": row["trust"]}
        total = {name: total[name] + counts[name] for name in total}
        error = "" if row["error"] is None else f"{row['error']:.2f}"
        lines.append(f"| {case.name} | " + " | ".join(map(str, counts.values())) + f" | {error} |")
    lines.append("| **all** | " + " | ".join(f"**{value}**" for value in total.values()) + " | |")
    lines += ["", "| trouble | strength | fits | seen | by | error of means (sd) |", "|---|---|---|---|---|---|"]
    for case in trouble_cases():
        row = found.get((case.name, case.strength))
        if row is None:
            continue
        fits = row["fits"]
        by = {name: count for name, count in {**row["kinds"], **row["reasons"]}.items() if count}
        unseen = row["trust"] + sum(row["kinds"].get(name, 0) for name in ("timed out", "failed"))
        shown = ", ".join(
            f"{name} {count}" for name, count in by.items() if name not in ("trust", "the model does not fit")
        )
        error = "" if row["error"] is None else f"{row['error']:.1f}"
        lines.append(
            f"| {case.name} | {case.strength} | {fits} | {100 * (1 - unseen / fits):.0f} % | {shown} | {error} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--right", type=int, default=1000, help="fits of right models, all together")
    parser.add_argument("--each", type=int, default=20, help="fits of every trouble at every strength")
    parser.add_argument("--first", type=int, default=0, help="number of the first data set, to go on later")
    parser.add_argument("--only", help="cases whose name matches")
    parser.add_argument("--out", default="docs/verdict")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a fit is ended")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no more are begun")
    parser.add_argument("--page", help="write the tables of --out into this page instead")
    options = parser.parse_args()
    if not options.page:
        os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
        os.environ.setdefault("LONGHMM_THREADS", "1")
        run(options)
        return
    page, rows = Path(options.page), summarise(Path(options.out))
    begin, end = "<!-- tables -->", "<!-- end of tables -->"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    page.write_text(before + begin + "\n\n" + tables(rows) + "\n\n" + end + rest.split(end)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
