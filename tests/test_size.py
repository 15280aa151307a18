"""How large the core is: what the first version could do, in no more lines and files than these.

The paper's experiments, a package of their own, do not count, nor do models that were added since.
"""

from pathlib import Path

import pytest

SOURCE, TOYS = Path(__file__).parents[1] / "src" / "longhmm", Path(__file__).parent / "toys"
CPP = {".cc", ".h"}
# Files of models and capabilities that the first version did not have; what only mends it, or makes it faster, counts.
ADDED = {
    # families of emissions, products of them, and values derived from coordinates
    *("beta.py", "exponential.py", "gamma_moments.py", "movement.py", "product.py", "weibull.py", "zeros.py"),
    # autoregression, noise that is correlated about the level, and filters
    *("ar.py", "coloured.py", "lags.py", "memory.py", "noise.py"),
    # a slow baseline
    *("drift.py", "drifting.py"),
    # sequences of unlike brightness
    *("alignment.py", "brightness.py"),
    # emissions around others
    "around.py",
    # covariates by formulas, for emissions and for transitions, and columns by name
    *("along.py", "by_formula.py", "columns.py", "covariates.py", "formula.py", "leverage.py", "logit.py"),
    *("made_of.py", "regression.py", "smooth.py", "terms.py"),
    # rates per second, averaging detectors, identical channels, durations
    *(
        "channels.py",
        "counted.py",
        "durations.py",
        "dwell_kinds.py",
        "equally_spaced.py",
        "frame_average.py",
        "hazards.py",
    ),
    *("kinetics.py", "phases.py", "rates.py", "rates_by_row.py", "renumbering.py", "schemes.py"),
    # traces of single molecules
    *("fret.py", "single_molecules.py", "smd.py", "tmaven.py", "traces.py"),
    # kernels: transitions that vary by row, states with phases, families and rows in part that had none
    *(
        "alike.h",
        "by_row.py",
        "compiled_varying.h",
        "constant.h",
        "logits.h",
        "looked_up.h",
        "moves.h",
        "moves_of.h",
        "placed.h",
        "shuffles.h",
    ),
    *("frames.h", "exponentials.h", "sparse.h", "varying.h", "varying.py", "with_moves.h"),
    *("counts.py", "densities.h", "densities.py", "marginal.h", "statistics.h"),
    # checks of the model behind the verdict, and simulated data beside the data
    *(
        "cdf_tables.py",
        "mixed.h",
        "mixed.py",
        "mixed_cdf.py",
        "mixed_rows.h",
        "tallied.h",
        "tallied.py",
        "drawn_path.py",
        "dwell_times.py",
        "dwell_trend.py",
        "edges.py",
        "held_out.py",
        "levels_by_time.py",
        "predictive.py",
    ),
    *("predictive_data.py", "shapes.py", "spare_states.py", "steady.py", "transitions_by_time.py", "uniform.py"),
    # states in other places, where the model tells them apart
    "arrangement.py",
    # what sampling needs of a user's own emission
    "sampling.py",
    # as data arrive: the filter, and the posterior of more data
    *("fixed_lag.py", "online.py", "updating.py", "watch.py"),
    # several models ranked, kept and shown side by side
    *("alternatives.py", "kept_runs.py", "side_by_side.py"),
    # names of columns, heat maps of emissions, pictures and progress in notebooks, ArviZ's groups, starts in part
    *("arviz_groups.py", "emission_map.py", "names.py", "notebook.py", "partial_start.py", "placing.py", "plotting.py"),
    # the page: contents, rates, and what is being made; tables in parts where they are too wide
    *("outline.py", "recording.py", "stages.py", "widths.py"),
    # programs on disk in bounded room, whole under kills; wheels for any processor
    *("kept_programs.py", "processor.h"),
}
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
