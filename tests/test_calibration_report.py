"""The page on calibration is written between its markers from what runs left behind."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PAGE = "\n".join(
    ["before", *(f"<!-- {mark}:begin -->\nold\n<!-- {mark}:end -->" for mark in ("cases", "methods", "ranks")), "after"]
)


def test_tables_and_picture(tmp_path):
    folder, page = tmp_path / "calibration", tmp_path / "calibration.md"
    folder.mkdir()
    page.write_text(PAGE)
    methods = {
        "case": "rare3", "length": 30_000, "n_states": 3, "seconds_each": 60.0,
        "methods": [
            {"method": "SGLD", "worst_shift": 0.2, "worst_shift_error": 0.011, "worst_sd_ratio": 1.4,
             "worst_kolmogorov": 0.2, "least_ess": 900.0, "ess_per_second": 15.0,
             "setup_seconds": 4.2, "touched": 2.5e8},
            {"method": "EM (a point)", "worst_shift": 0.07, "setup_seconds": 1.8, "touched": 3e6},
            {"method": "SGHMC", "failed": "The chain left the region where the model is finite."},
        ],
    }  # fmt: skip
    ranks = {
        "method": "Gibbs", "model": "poisson2", "length": 500, "replications": 100, "failed": [], "names": ["rate[0]"],
        "p_values": [0.4], "widths": [1.02], "right": True, "draws": 99, "seconds": 1800.0,
        "below": [[5 * i for i in range(1, 21)]],
    }  # fmt: skip
    (folder / "methods-rare3.json").write_text(json.dumps(methods))
    (folder / "sbc-Gibbs-poisson2.json").write_text(json.dumps(ranks))
    arguments = ["--folder", str(folder), "--page", str(page)]
    subprocess.run([sys.executable, str(BENCHMARKS / "report.py"), *arguments], check=True)
    text = page.read_text()
    assert text.startswith("before") and text.endswith("after") and text.count("old") == 1  # there are no cases
    assert "| SGLD | 0.20 ± 0.01 | 1.40 | 0.200 | 900 | 15.0 | 4 | 2.5e+08 |" in text
    assert "| EM (a point) | 0.07 |  |  |  |  | 2 | 3.0e+06 |" in text
    assert "| SGHMC | The chain left the region" in text
    assert "| Gibbs | poisson2 | 500 | 100 | 0.400 of 1 | 1.02 to 1.02 | yes |" in text
    assert "All 1 numbers together: the smallest p is 0.4000" in text and "It took 0.5 hours of one core." in text
    assert (folder / "ranks.png").stat().st_size > 1000 and "(calibration/ranks.png)" in text
