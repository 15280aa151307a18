"""The tables of docs/calibration.md and the picture of ranks, from the JSON files that the other programs wrote.

python benchmarks/report.py --folder docs/calibration --page docs/calibration.md
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from calibration import table

BAND = {"color": "#d9e2ec", "linewidth": 0}


def method_table(document: dict[str, Any]) -> str:
    """One row per method."""
    lines = [
        f"{document['n_states']} states, {document['length']:,} observations (`{document['case']}`), "
        f"at most {document['seconds_each']:g} seconds for each method, with Monte Carlo errors:",
        "",
        "| method | worst mean shift (sd) | worst sd ratio | worst Kolmogorov distance, rare transitions | least ESS | "
        "ESS per second | seconds before the first draw | observations touched |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in document["methods"]:
        if "failed" in row:
            lines.append(f"| {row['method']} | {row['failed']} | | | | | | |")
            continue
        numbers = [
            f"{row['worst_shift']:.2f}{_error(row.get('worst_shift_error'))}",
            f"{_shown(row.get('worst_sd_ratio'), '.2f')}{_error(row.get('worst_sd_ratio_error'))}",
            _shown(row.get("worst_kolmogorov"), ".3f"),
            _shown(row.get("least_ess"), ",.0f"),
            _shown(row.get("ess_per_second"), ",.1f"),
            f"{row['setup_seconds']:.0f}",
            f"{row['touched']:.1e}",
        ]
        lines.append(f"| {row['method']} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def scale_table(results: list[dict[str, Any]]) -> str:
    """Two rows per model: common parameters, and transitions that are nearly never seen."""
    lines = [
        "| model | parameters | mean sd ratio | rms shift (sd) | by chance | least ESS, default | median ESS, exact | "
        "seconds, default |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for kind, rare in (("common", False), ("rare transitions", True)):
            rows = [row for row in result["rows"] if row["rare"] is rare]
            if not rows:
                continue
            columns = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "parameter"}
            error = columns["sd_ratio_error"].mean() / np.sqrt(len(rows))
            shift, chance = (np.sqrt((columns[name] ** 2).mean()) for name in ("shift", "shift_error"))
            lines.append(
                f"| {result['case']} | {len(rows)} {kind} | {columns['sd_ratio'].mean():.3f} ± {error:.3f} | "
                f"{shift:.3f} | {chance:.3f} | "
                f"{columns['ess'].min():,.0f} | {np.median(columns['exact_ess']):,.0f} | {result['seconds']:.0f} |"
            )
    return "\n".join(lines)


def rank_table(results: list[dict[str, Any]]) -> str:
    """One row per method and model."""
    lines = [
        "| method | model | T | data sets | smallest p of P numbers | sd of ranks, over uniform | right at 1 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        widths = result["widths"]
        failed = f", {len(result['failed'])} failed" if result["failed"] else ""
        lines.append(
            f"| {result['method']} | {result['model']} | {result['length']:,} | {result['replications']}{failed} | "
            f"{min(result['p_values']):.3f} of {len(widths)} | {min(widths):.2f} to {max(widths):.2f} | "
            f"{'yes' if result['right'] else 'no'} |"
        )
    every = [p for result in results for p in result["p_values"]]
    chance, hours = min(1.0, len(every) * min(every)), sum(result["seconds"] for result in results) / 3600
    lines += [
        "",
        f"All {len(every)} numbers together: the smallest p is {min(every):.4f}; the chance of one as small, if every "
        f"posterior were right, is at most {chance:.2f}. It took {hours:.1f} hours of one core.",
    ]
    return "\n".join(lines)


def rank_picture(results: list[dict[str, Any]], file: Path) -> None:
    """For every method and model a histogram of ranks, and beside it their distribution function minus the uniform one,
    each with the band that holds all its points, of one right number, with a chance of 95 %."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows, columns = (list(dict.fromkeys(result[key] for result in results)) for key in ("method", "model"))
    size = (4.0 * len(columns) + 0.6, 1.7 * len(rows) + 0.5)
    figure, axes = plt.subplots(len(rows), 2 * len(columns), figsize=size, squeeze=False, sharex=True)
    for panel in axes.flat:
        panel.set_visible(False)
    for result in results:
        row, column = rows.index(result["method"]), 2 * columns.index(result["model"])
        name = f"{result['method']}, {result['model']}"
        for panel, draw, title in zip(axes[row, column:], (histograms, differences), (name, ""), strict=False):
            panel.set_visible(True)
            draw(panel, result)
            panel.set_title(title, fontsize=8)
            panel.tick_params(labelsize=6)
    figure.supxlabel("rank of the truth among draws: density, and distribution function minus rank", fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    plt.close(figure)


def histograms(panel: Any, result: dict[str, Any]) -> None:
    """Counts between the points at which distribution functions are compared, over those of even ranks."""
    from scipy.stats import binom

    from longhmm.posterior.diagnostics.uniform import points

    total = result["replications"]
    edges = np.concatenate([[0.0], points(result["draws"]) / (result["draws"] + 1), [1.0]])
    widths = np.diff(edges)
    lower, upper = (binom.ppf(0.5 + side * (0.5 - 0.025 / len(widths)), total, widths) for side in (-1, 1))
    panel.fill_between(edges, *(np.append(each / total / widths, 0.0) for each in (lower, upper)), step="post", **BAND)
    for below in result["below"]:
        counts = np.diff(np.concatenate([[0.0], below, [total]]))
        panel.stairs(counts / total / widths, edges, baseline=None, linewidth=0.6)
    panel.set_ylim(bottom=0.0)


def differences(panel: Any, result: dict[str, Any]) -> None:
    from longhmm.posterior.diagnostics.uniform import ecdf_band, points

    total, at = result["replications"], points(result["draws"]) / (result["draws"] + 1)
    lower, upper = ecdf_band(total, result["draws"])
    panel.fill_between(at, lower / total - at, upper / total - at, **BAND)
    for below in result["below"]:
        panel.plot(at, np.array(below) / total - at, linewidth=0.8)


def between(page: str, mark: str, text: str) -> str:
    """The page with what stands between two markers replaced."""
    pattern = re.compile(rf"(<!-- {mark}:begin -->\n).*?(<!-- {mark}:end -->)", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"The page must hold the markers <!-- {mark}:begin --> and <!-- {mark}:end -->.")
    return pattern.sub(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _error(value: float | None) -> str:
    return "" if value is None else f" ± {value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("docs/calibration"))
    parser.add_argument("--page", type=Path, default=Path("docs/calibration.md"))
    options = parser.parse_args()
    files = {file.name: json.loads(file.read_text()) for file in sorted(options.folder.glob("*.json"))}
    page = options.page.read_text()
    cases = [found for name, found in files.items() if "rows" in found and not name.startswith("at-scale-")]
    if cases:
        page = between(page, "cases", table(cases))
    long = [found for name, found in files.items() if name.startswith("at-scale-")]
    if long:
        page = between(page, "scale", scale_table(long))
    methods = [found for name, found in files.items() if name.startswith("methods-")]
    if methods:
        page = between(page, "methods", "\n\n".join(method_table(found) for found in methods))
    ranks = [found for name, found in files.items() if name.startswith("sbc-")]
    if ranks:
        rank_picture(ranks, options.folder / "ranks.png")
        picture = f"![Histograms and distribution functions of ranks]({options.folder.name}/ranks.png)"
        page = between(page, "ranks", f"{rank_table(ranks)}\n\n{picture}")
    options.page.write_text(page)


if __name__ == "__main__":
    main()
