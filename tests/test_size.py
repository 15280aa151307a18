"""How large the core is: what the first version could do, in no more lines and files than these.

The paper's experiments, a package of their own, do not count, nor do models that were added since.
"""

from pathlib import Path

import pytest

SOURCE, TOYS = Path(__file__).parents[1] / "src" / "longhmm", Path(__file__).parent / "toys"
CPP = {".cc", ".h"}
# Models, and capabilities, that the first version did not have.
ADDED = {"ar.py", "coloured.py", "densities.h", "densities.py", "marginal.h", "memory.py", "noise.py", "product.py"}
ADDED |= {"statistics.h", "statistics.py"}
ADDED |= {"counts.py", "kept_programs.py", "programs.py", "processor.h", "row_by_row.py"}
ADDED |= {
    "drawn_path.py",
    "dwell_trend.py",
    "levels_by_time.py",
    "model_fit.py",
    "shapes.py",
    "steady.py",
    "transitions_by_time.py",
}
ADDED |= {"cdf_tables.py", "dwell_trend.py", "predictive.py", "predictive_data.py", "uniform.py"}
ADDED |= {"by_formula.py", "gamma_moments.py", "made_of.py", "regression.py", "smooth.py", "terms.py"}
ADDED |= {"along.py", "columns.py", "covariates.py", "formula.py", "logit.py"}
ADDED |= {"beta.py", "exponential.py", "movement.py", "rates.py", "renumbering.py", "weibull.py", "zeros.py"}
ADDED |= {"channels.py", "durations.py", "equally_spaced.py", "frame_average.py", "kinetics.py"}
ADDED |= {"alike.h", "frames.h", "hazards.py", "phases.py"}
ADDED |= {"single_molecules.py", "fret.py", "smd.py", "tmaven.py", "traces.py"}
ADDED |= {
    "emission_map.py",
    "names.py",
    "outline.py",
    "placing.py",
    "plotting.py",
    "recording.py",
    "side_by_side.py",
    "stages.py",
}
ADDED |= {"alternatives.py", "drift.py", "drifting.py", "edges.py"}
ADDED |= {"arviz_groups.py", "kept_runs.py", "notebook.py", "partial_start.py", "updating.py", "widths.py"}
ADDED |= {"by_row.py", "compiled_varying.h", "constant.h", "logits.h", "looked_up.h", "moves.h", "moves_of.h"}
ADDED |= {"placed.h", "powers.h", "sparse.h", "varying.h", "varying.py", "with_moves.h"}
ADDED |= {"fixed_lag.py", "language.py", "online.py", "shown.py", "tables.py", "watch.py"}
MOST = {"Python lines": 23_000, "Python files": 160, "C++ lines": 2_200, "lines of the longest file": 400}


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def count(source: Path) -> dict[str, int]:
    """What the package has of each kind."""
    python = [lines(path) for path in source.rglob("*.py") if path.name not in ADDED]
    cpp = [lines(path) for path in source.rglob("*") if path.suffix in CPP and path.name not in ADDED]
    return {
        "Python lines": sum(python),
        "Python files": len(python),
        "C++ lines": sum(cpp),
        "lines of the longest file": max(python + cpp, default=0),
    }


@pytest.mark.parametrize("kind", MOST)
def test_the_core_stays_small(kind):
    assert count(SOURCE)[kind] <= MOST[kind]


@pytest.mark.parametrize("toy", sorted(TOYS.glob("test_*.py")), ids=lambda toy: toy.stem)
def test_a_toy_is_one_short_file(toy):
    assert lines(toy) < 60


def test_everything_is_counted(tmp_path):
    (tmp_path / "native").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n" * 3)
    (tmp_path / "native" / "b.py").write_text("x = 1\n")
    (tmp_path / "native" / "c.cc").write_text("\n" * 7)
    (tmp_path / "native" / "page.js").write_text("\n" * 70)
    expected = {"Python lines": 4, "Python files": 2, "C++ lines": 7, "lines of the longest file": 7}
    assert count(tmp_path) == expected
