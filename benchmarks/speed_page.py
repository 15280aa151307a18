"""Puts the figures of `aims.json`, `speed.json` and `gpu.json` into the marked parts of docs/speed.md."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from aims import Row, lines

from run import AIMS, LENGTH_AIM, STEP_AIM, length_ratio


def cpu_table(found: dict[str, Any]) -> str:
    lines = ["| one exact pass | ns per observation | times the gradient | aim |", "|---|---|---|---|"]
    base = found["ns_per_observation"]["longhmm gradient"]
    for name, cost in found["ns_per_observation"].items():
        aim = f"{AIMS[name]:.0f}" if name in AIMS else ""
        lines.append(f"| {name} | {cost:,.1f} | {cost / base:.1f} | {aim} |")
    step = found["step_us_per_chain"]
    lines += [
        "",
        f"One step of SG-RLD (10 windows of 5 with buffers of 10, four chains, everything included): "
        f"{step['fused']:.0f} microseconds per chain, {step['JAX reference']:.0f} without the kernel, "
        f"{found['step_ratio']:.1f} times as many (aim {STEP_AIM:.0f}).",
        "",
        "| the gradient | ns per observation |",
        "|---|---|",
    ]
    for kind, costs in found["scaling_ns"].items():
        lines.append(f"| by {kind} | {', '.join(f'{size}: {cost:.0f}' for size, cost in costs.items())} |")
    lines += ["", *_steps(found), "", *_limits(found)]
    return "\n".join(lines)


def _steps(found: dict[str, Any]) -> list[str]:
    lines = ["| one step of SG-RLD, microseconds per chain | |", "|---|---|"]
    by_windows = ", ".join(f"{count}: {cost:.0f}" for count, cost in found["step_us_by_windows"].items())
    lines.append(f"| by number of windows (5 + 2 x 10 long) | {by_windows} |")
    for index, (size, costs) in enumerate(found["step_us_by_length"].items()):
        shown = ", ".join(f"{length}: {cost:.0f}" for length, cost in costs.items())
        aim = "" if index else f" (aim at most {LENGTH_AIM})"
        lines.append(f"| by length of a memory map, {size} | {shown}; ratio {length_ratio(costs):.2f}{aim} |")
    for size, parts in found["loop_us_per_chain"].items():
        shares = ", ".join(f"{name} {cost / parts['total']:.0%}" for name, cost in parts.items() if name != "total")
        lines.append(f"| where it goes, {size}, recording every step | {parts['total']:.0f}: {shares} |")
    return lines


def _limits(found: dict[str, Any]) -> list[str]:
    roof = found["roofline"]
    memory = ", ".join(f"{name} {size:,.0f}" for name, size in found["peak_memory_mb"].items())
    return [
        f"Roofline: about {roof['multiply_adds_per_observation']:.0f} multiply-adds per observation, "
        f"{roof['share_of_peak']:.0%} of what the matrix library reached on the same processors in the same run; "
        f"{roof['bytes_read_per_observation']:.0f} bytes read per observation, "
        f"{roof['share_of_memory_bandwidth']:.1%} of what one thread reads: arithmetic is the limit.",
        "",
        f"Most memory held, in MB, with {found['length']:,} observations in a memory map whose pages count: {memory}.",
        "",
        f"Measured on {found['machine']}, {found['length']:,} observations; load of the machine (programs wanting to "
        f"run) before and after: {', '.join(f'{each:.1f}' for each in found['load'])}.",
    ]


def gpu_table(found: dict[str, Any]) -> str:
    best: dict[str, float] = {}
    for result in found["results"]:
        if "ms" in result:
            name = re.sub(r" chunk=.*| Config.*", "", result["name"])
            best[name] = min(best.get(name, float("inf")), result["ms"])
    lines = [f"{found['device']}, {found['rows']:,} rows, JAX {found['jax']}; the best layout of each kind.", ""]
    lines += ["| what | ms |", "|---|---|", *(f"| {name} | {cost:.2f} |" for name, cost in best.items())]
    fits = {result["name"]: result["seconds"] for result in found["results"] if "seconds" in result}
    alone = {result["name"]: result["ms_alone"] for result in found["results"] if "ms_alone" in result}
    lines += [
        f"| {name.split(' chunk=')[0]}, waited for | {cost:.2f} |" for name, cost in alone.items() if "=592" in name
    ]
    lines += [
        f"| {name}, first and second | {' and '.join(f'{1e3 * s:,.0f}' for s in each)} |" for name, each in fits.items()
    ]
    return "\n".join(lines)


def aims_table(found: dict[str, Any]) -> str:
    load = " and ".join(f"{each:.1f}" for each in found["load"])
    said = f"{found['cores']} cores; load of the machine (programs wanting to run) before and after: {load}."
    return "\n".join([*lines([Row(**row) for row in found["rows"]]), "", said])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/speed"))
    parser.add_argument("--page", type=Path, default=Path("docs/speed.md"))
    options = parser.parse_args()
    text = options.page.read_text(encoding="utf-8")
    for name, table in (("aims", aims_table), ("speed", cpu_table), ("gpu", gpu_table)):
        found = json.loads((options.folder / f"{name}.json").read_text(encoding="utf-8"))
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
        text = pattern.sub(lambda match, table=table, found=found: f"{match[1]}{table(found)}\n{match[2]}", text)
    options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
