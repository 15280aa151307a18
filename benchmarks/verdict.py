"""How often the verdict is wrong: many data sets through the whole default pipeline, right models and troubled ones.

    python benchmarks/verdict.py --workers 2 --right 1000 --each 20 --out docs/verdict
    python benchmarks/verdict.py --page docs/verdict.md

For right models: how often each reason for distrust appears. For troubles: how often they are seen, beside how far the
answers really are from the truth: the root mean square of (posterior mean - truth) / posterior sd over parameters and
data sets, 1 if intervals are honest. Every worker takes whole cases, since fits of one shape share compiled programs.
"""

import argparse
import json
import multiprocessing
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
REASONS = {  # what a reason is known by
    "correlated": "are correlated",
    "distribution": "not distributed as",
    "tails": "lie beyond",
    "dwell times": "do not last as",
    "scatter": "scatter more",
}
LONG = re.compile("1,000,000|8 states|sequences|50,000")
CHUNK = 12  # trials that a worker does in a row


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
    kinds = [name for name, text in REASONS.items() if text in verdict.reason]
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


def work(job: tuple[str, str | None, list[int]]) -> list[dict[str, Any]]:
    """Some trials of one case."""
    import numpy as np
    from verdict_cases import right_cases, trouble_cases

    name, strength, numbers = job
    case = next(each for each in (*right_cases(), *trouble_cases()) if (each.name, each.strength) == (name, strength))
    found = []
    for number in numbers:
        began = time.perf_counter()
        try:
            one = judged(case.make(np.random.default_rng([number, *map(ord, name + str(strength))])))
        except Exception as failed:
            one = {"kind": "failed", "kinds": [], "reason": f"{type(failed).__name__}: {failed}", "z2": None}
        found.append(
            {"name": name, "strength": strength, "number": number, **one, "seconds": time.perf_counter() - began}
        )
    return found


def run(options: argparse.Namespace) -> None:
    from verdict_cases import right_cases, trouble_cases

    models, troubles = list(right_cases()), list(trouble_cases())
    jobs = []
    for case in (*models, *troubles):
        count = -(-options.right // len(models)) if case.strength is None else options.each
        numbers = list(range(options.first, options.first + count))
        jobs += [(case.name, case.strength, numbers[i : i + CHUNK]) for i in range(0, count, CHUNK)]
    if options.only:
        jobs = [job for job in jobs if re.search(options.only, job[0])]
    place = Path(options.out)
    place.mkdir(parents=True, exist_ok=True)
    began, done, total = time.perf_counter(), 0, sum(len(job[2]) for job in jobs)
    # Long jobs early, so that no worker is left with one of them at the end; those with a state too many, which may go
    # to the exact sampler, last.
    jobs.sort(key=lambda job: (job[1] is not None, "too many" in job[0], not LONG.search(job[0])))
    with (
        open(place / "trials.jsonl", "a", encoding="utf-8") as file,
        multiprocessing.get_context("spawn").Pool(options.workers, maxtasksperchild=16) as pool,
    ):
        for found in pool.imap_unordered(work, jobs):
            file.writelines(json.dumps(one) + "\n" for one in found)
            file.flush()
            done += len(found)
            spent = time.perf_counter() - began
            print(f"{done} of {total}, {spent:.0f} s, about {spent / done * (total - done):.0f} s left", flush=True)
    summarise(place)


def summarise(place: Path) -> None:
    """`summary.json`, small, from all trials that were kept."""
    trials = [json.loads(line) for line in (place / "trials.jsonl").read_text(encoding="utf-8").splitlines()]
    cases: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for trial in trials:
        cases.setdefault((trial["name"], trial["strength"]), []).append(trial)
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


def tables(rows: list[dict[str, Any]]) -> str:
    """Two tables: right models and troubles."""
    from verdict_cases import right_cases, trouble_cases

    found = {(row["name"], row["strength"]): row for row in rows}
    headings = ["run longer", "biased", "another mode is as good"]
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
        shown = ", ".join(
            f"{name} {count}" for name, count in by.items() if name not in ("trust", "the model does not fit")
        )
        error = "" if row["error"] is None else f"{row['error']:.1f}"
        lines.append(
            f"| {case.name} | {case.strength} | {fits} | {100 * (1 - row['trust'] / fits):.0f} % | {shown} | {error} |"
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
    parser.add_argument("--page", help="write the tables of --out into this page instead")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    os.environ.setdefault("LONGHMM_THREADS", "1")
    if not options.page:
        run(options)
        return
    page, rows = Path(options.page), json.loads((Path(options.out) / "summary.json").read_text(encoding="utf-8"))
    begin, end = "<!-- tables -->", "<!-- end of tables -->"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    page.write_text(before + begin + "\n" + tables(rows) + "\n" + end + rest.split(end)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
