"""How often the verdict is wrong: many data sets through the whole default pipeline, right models and troubled ones.

    python benchmarks/verdict.py --workers 12 --right 1000 --each 20 --limit 600 --budget 7200 --out docs/verdict
    python benchmarks/verdict.py --page docs/verdict.md --out docs/verdict

For right models: how often each reason for distrust appears. For troubles: how often they are seen, beside how far the
answers really are from the truth, and whether that matters (`verdict_tables.py`).

The first command adds a line to `trials.jsonl` for every fit, in rounds over all cases, and does not repeat what is
there already: it can be stopped and called again. A fit that takes longer than `--limit` is ended and counted as such;
after `--budget` seconds no more are begun, and tables are printed. The second command makes tables of all `*.jsonl` in
the folder.
"""

import argparse
import json
import multiprocessing
import os
import re
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from verdict_tables import matters, reasons_in, summary, tables

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
LONG = re.compile("1,000,000|8 states|too many")
CHUNK = 12  # trials of one case that a worker does in a row: fits of one shape share compiled programs
RENEWED = 12  # chunks after which a worker starts afresh, without what its programs hold
NOTHING: dict[str, Any] = {"kinds": [], "z": {}, "inside": None}  # of a fit that did not end


def judged(trial: Any) -> dict[str, Any]:
    """What the verdict says of one trial, and how far the answers are from the truth."""
    import numpy as np

    posterior = fitted(trial)
    verdict = posterior.diagnose(trial.data)
    off, inside = {}, []
    for name, truth in trial.truth.items():
        if name in posterior.draws:
            draws, true = np.asarray(posterior.draws[name]), np.asarray(truth)
            mean, sd, ends = draws.mean((0, 1)), draws.std((0, 1)), np.quantile(draws, [0.05, 0.95], (0, 1))
            for entry in zip(*np.nonzero((sd > 0) & np.isfinite(true)), strict=True):
                off[f"{name}{list(map(int, entry))}"] = float((mean[entry] - true[entry]) / sd[entry])
                inside.append(bool(ends[0][entry] <= true[entry] <= ends[1][entry]))
    return {
        "kind": verdict.kind, "kinds": reasons_in(verdict.reason), "reason": verdict.reason, "z": off,
        "inside": float(np.mean(inside)) if inside else None,
    }  # fmt: skip


def fitted(trial: Any) -> Any:
    """The posterior as users have it, or spoiled as the trial says."""
    import numpy as np

    import longhmm as lh
    from longhmm.posterior.posterior import Posterior
    from longhmm.run.chains import Chains

    options = trial.options or {}
    if trial.mixed:
        each = [
            lh.sample(trial.model, trial.data, progress=False, chains=1, init=start, seed=number, **options).coordinates
            for number, start in enumerate(trial.mixed)
        ]
        moved = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
    else:
        posterior = lh.sample(trial.model, trial.data, progress=False, **options)
        if trial.spoil is None:
            return posterior
        (shift, factor), moved = trial.spoil, {}
        for name, value in posterior.coordinates.items():
            mean, sd = value.mean(axis=(0, 1)), value.std(axis=(0, 1))
            moved[name] = mean + shift * sd + factor * (value - mean)
    return Posterior.from_chains(trial.model, Chains(moved, {}, {}, None, None, ()), lh.open_data(trial.data))


Job = tuple[str, str | None, int]  # a case and the number of its data set


def trial(job: Job) -> dict[str, Any]:
    import numpy as np
    from verdict_cases import right_cases, trouble_cases

    name, strength, number = job
    case = next(each for each in (*right_cases(), *trouble_cases()) if (each.name, each.strength) == (name, strength))
    try:
        return judged(case.make(np.random.default_rng([number, *map(ord, name + str(strength))])))
    except Exception as failed:
        return {**NOTHING, "kind": "failed", "reason": f"{type(failed).__name__}: {failed}"}


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

    models, chunks, wanted = list(right_cases()), [], None
    if options.matters:
        rows = json.loads(Path(options.matters).read_text(encoding="utf-8"))
        wanted = {(row["name"], row["strength"]) for row in rows if matters(row) or row["strength"] is None}
    for case in (*models, *trouble_cases()):
        named = case.name if case.strength is None else f"{case.name} {case.strength}"
        if options.only and not re.search(options.only, named):
            continue
        if wanted is not None and (case.name, case.strength) not in wanted:
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
                for worker in workers:
                    del worker.left[1:]
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
                    one = {**NOTHING, "kind": "failed", "reason": "the process ended"}
                if one is None and seconds > options.limit:
                    one = {**NOTHING, "kind": "timed out", "reason": f"after {seconds:.0f} s"}
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
    print(summarise(place))


def trials(place: Path) -> list[dict[str, Any]]:
    """All that were kept, each once."""
    lines = (line for file in sorted(place.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines())
    found = (json.loads(line) for line in lines)
    return list({(one["name"], one["strength"], one["number"]): one for one in found}.values())


def summarise(place: Path) -> str:
    """The tables, from all trials that were kept; `summary.json` has the same, small."""
    from verdict_cases import right_cases, trouble_cases

    rows = summary(trials(place))
    (place / "summary.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return tables(rows, [case.name for case in right_cases()], [(case.name, case.strength) for case in trouble_cases()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--right", type=int, default=1000, help="fits of right models, all together")
    parser.add_argument("--each", type=int, default=20, help="fits of every trouble at every strength")
    parser.add_argument("--first", type=int, default=0, help="number of the first data set, to go on later")
    parser.add_argument("--only", help="cases whose name, a space and its strength match")
    parser.add_argument("--matters", help="a summary.json: of troubles only those that matter there")
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
    page, found = Path(options.page), summarise(Path(options.out))
    begin, end = "<!-- tables -->", "<!-- end of tables -->"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    page.write_text(before + begin + "\n\n" + found + "\n\n" + end + rest.split(end)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
