"""From the outcome of an experiment to a page: its figure, its table, and what became of the claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longhmm_reproduction import claims
from longhmm_reproduction.summary import stem_of

TITLES = {
    "dd": "Diagonally dominant",
    "rc": "Reversed cycles",
    "rc-hard": "Reversed cycles, hard to tell apart",
    "lognormal": "Log-normal observations",
    "ion": "A single channel",
    "variational": "Variational and exact posteriors",
}
COLUMNS = {
    "predictive_log_prob": "predictive log probability",
    "transition_error": "error of transitions",
    "seconds": "seconds",
    "observations_touched": "observations read",
    "rms_correlation": "root mean square correlation",
}
ON_THE_PAGE = {
    "seconds_to_target": "seconds to the target",
    "median_sd_ratio": "standard deviations / exact, median",
    "least_sd_ratio": "least",
    "median_correlation_ess": "effective draws of the strongest correlations, median",
    "least_correlation_ess": "least",
    "largest_rhat": "largest R-hat",
}


def write_report(found: Mapping[str, Any], out: Path) -> list[Path]:
    """The outcome itself, its figure and a page in Markdown, all named after experiment and scale."""
    from longhmm_reproduction.figures import draw

    out.mkdir(parents=True, exist_ok=True)
    stem = stem_of(found)
    outcome, picture, page = (out / f"{stem}.{kind}" for kind in ("json", "png", "md"))
    outcome.write_text(json.dumps(_short(found), separators=(",", ":")) + "\n", encoding="utf-8")
    draw(found).savefig(picture, dpi=120, facecolor="white")
    page.write_text(as_page(found, stem), encoding="utf-8")
    return [outcome, picture, page]


def _short(value: Any) -> Any:
    """The same with six digits of every number that is not whole: enough to draw and to judge it again."""
    if isinstance(value, Mapping):
        return {key: _short(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def as_page(found: Mapping[str, Any], stem: str) -> str:
    """The page of one experiment."""
    name, settings = found["experiment"], found["settings"]
    lines = [f"# {TITLES[name]}", "", _command(name, settings), "", f"![{TITLES[name]}]({stem}.png)", ""]
    if settings.get("substitute_for_alamethicin"):
        lines += [f"Substitutes for the paper's alamethicin, which was not at hand: {settings['recording']}.", ""]
        lines += [f"Left out: {settings['not_found']}.", ""] if settings.get("not_found") else []
    lines += ["| claim | verdict | evidence |", "|---|---|---|"]
    lines += [f"| {each.sentence} | **{each.verdict}** | {each.evidence} |" for each in claims.judge(found)]
    lines += ["", *as_table(found["results"]), ""]
    lines += [
        *_notes(found),
        "",
        "Settings:",
        "",
    ]
    shown = {key: value for key, value in settings.items() if not _nested(value)}
    lines += [f"- `{key}`: {value}" for key, value in shown.items()]
    if "truth" in settings:
        lines.append(f"- the true parameters score {settings['truth']['predictive_log_prob']:.4f}")
    return "\n".join(lines) + "\n"


def _notes(found: Mapping[str, Any]) -> list[str]:
    """How the table and the figure are to be read."""
    if "trade_off" not in found["settings"]:
        return [
            "Means over repetitions ± standard errors. `seconds` is the wall time in which all chains of a method ran "
            "side by side, without compiling except for `default` and posteriors of whole data; observations read are "
            "those of one chain."
        ]
    chosen = found["settings"].get("default", [])
    stopped = [each["stopped"] for each in chosen if "stopped" in each]
    said = [f"In {len(stopped)} of {len(chosen)} repetitions `default` {stopped[0]}.", ""] if stopped else []
    return [
        *said,
        "Means over repetitions ± standard errors; every repetition has its own data, held-out data, start and "
        "windows. SG-RLD is judged by its average over the second half of its steps, `default` by its posterior mean; "
        "lines in the figure are averages between two looks, and bands reach from the least to the greatest "
        "repetition. `seconds` are wall time of one chain, without compiling; of `default`, of all its chains, with "
        "compiling. Observations read are those of one chain, those that chose buffers included. An exponent of -15 "
        "is the smallest that is told apart.",
    ]


def _nested(value: Any) -> bool:
    """Whether a setting is too much for a line."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))


def _command(name: str, settings: Mapping[str, Any]) -> str:
    machine, workers = settings["machine"], settings.get("workers", 1)
    how = f"{name} --scale {settings['scale']} --seed {settings['seed']}"
    command = (
        f"longhmm reproduce {how}" if workers == 1 else f"python -m longhmm_reproduction {how} --workers {workers}"
    )
    taken = settings.get("taken", [])
    seconds = "" if taken else f"in {settings['total_seconds']:g} seconds "
    said = (
        f"`{command}`, {seconds}on {machine['cores']} cores ({machine['processor']}), JAX {machine['jax']} on "
        f"{machine['device']}."
    )
    if taken:
        said += f" {len(taken)} parts were finished by earlier runs."
    if elsewhere := [each for each in taken if each["elsewhere"]]:
        other = elsewhere[0]["elsewhere"]
        parts = ", ".join(f"`{each['part']}`" for each in elsewhere)
        said += (
            f" Of these, {parts} ran on {other['cores']} cores ({other['processor']}): their seconds are of that "
            "machine."
        )
    return said


def as_table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Rows of a Markdown table, one per method."""
    titles = {**COLUMNS, **ON_THE_PAGE}
    columns = [name for name in titles if any(name in each for each in results.values())]
    lines = ["| method | " + " | ".join(titles[name] for name in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for method, metrics in results.items():
        cells = [_cell(metrics.get(name), metrics.get(f"{name}_se", 0.0)) for name in columns]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def _cell(value: float | None, error: float | None) -> str:
    if value is None:
        return ""
    shown = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}" if abs(value) < 1 else f"{value:.4f}"
    return f"{shown} ± {error:.1g}" if error else shown
