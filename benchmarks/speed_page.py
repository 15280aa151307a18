"""Puts the figures of `speed.json` and `gpu.json` into the marked parts of docs/speed.md."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from run import AIMS, STEP_AIM


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
        "| scaling | ns per observation |",
        "|---|---|",
    ]
    for kind, costs in found["scaling_ns"].items():
        lines.append(f"| by {kind} | {', '.join(f'{size}: {cost:.0f}' for size, cost in costs.items())} |")
    roof = found["roofline"]
    lines += [
        "",
        f"Roofline: about {roof['multiply_adds_per_observation']:.0f} multiply-adds per observation, "
        f"{roof['share_of_peak']:.0%} of what the matrix library reached on the same processors in the same run; "
        f"{roof['bytes_read_per_observation']:.0f} bytes read per observation. Steps on memory maps, microseconds per "
        f"chain by length: {', '.join(f'{size}: {cost:.0f}' for size, cost in found['step_us_by_length'].items())}. "
        f"Measured on {found['machine']}, {found['length']:,} observations.",
    ]
    return "\n".join(lines)


def gpu_table(found: dict[str, Any]) -> str:
    best: dict[str, float] = {}
    for result in found["results"]:
        if "ms" in result:
            name = re.sub(r" chunk=.*| Config.*", "", result["name"])
            best[name] = min(best.get(name, float("inf")), result["ms"])
    lines = [f"{found['device']}, {found['rows']:,} rows, JAX {found['jax']}; the best layout of each kind.", ""]
    lines += ["| what | ms |", "|---|---|", *(f"| {name} | {cost:.2f} |" for name, cost in best.items())]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/speed"))
    parser.add_argument("--page", type=Path, default=Path("docs/speed.md"))
    options = parser.parse_args()
    text = options.page.read_text(encoding="utf-8")
    for name, table in (("speed", cpu_table), ("gpu", gpu_table)):
        found = json.loads((options.folder / f"{name}.json").read_text(encoding="utf-8"))
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
        text = pattern.sub(lambda match, table=table, found=found: f"{match[1]}{table(found)}\n{match[2]}", text)
    options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
