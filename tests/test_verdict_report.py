"""The trials of the verdict: planned in rounds, ended where they hang, never done twice, and written into the page."""

import argparse
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS, PAGE = Path(__file__).parents[1] / "benchmarks", Path(__file__).parents[1] / "docs" / "verdict.md"


@pytest.fixture
def verdict(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import verdict

    yield verdict
    for name in ("verdict", "verdict_cases", "verdict_tables"):
        sys.modules.pop(name, None)


def asked(**given):
    options = {
        "workers": 1,
        "right": 12,
        "each": 1,
        "first": 0,
        "only": None,
        "matters": None,
        "limit": 600.0,
        "budget": 600.0,
    }
    return argparse.Namespace(**{**options, **given})


def kept(name, strength, number, kind="trust", reasons=(), z=1.0):
    one = {"name": name, "strength": strength, "number": number, "kind": kind, "kinds": list(reasons)}
    return json.dumps({**one, "reason": "", "z": {"a": z, "b": 1.0}, "inside": 0.5, "seconds": 2.0}) + "\n"


def test_every_case_comes_in_every_round_and_what_is_known_is_left_out(verdict):
    chunks = verdict.planned(asked(right=300, each=20, only="drift|1 state, T"), set())
    assert [(jobs[0][:2], len(jobs)) for jobs in chunks[:5]] == [
        (("Gaussian, 1 state, T = 300", None), 12),
        *((("levels drift, in sd from end to end", size), 12) for size in ("0.2", "0.5", "1.0", "2.0")),
    ]
    assert sum(map(len, chunks)) == 25 + 4 * 20
    known = {job for jobs in chunks for job in jobs[1:]}
    assert [len(jobs) for jobs in verdict.planned(asked(right=300, each=20, only="drift|1 state, T"), known)] == [
        1
    ] * 11


def test_a_run_can_be_limited_to_strengths_and_to_those_that_matter(verdict, tmp_path):
    drift = "levels drift, in sd from end to end"
    (tmp_path / "a.jsonl").write_text(
        "".join(kept(drift, size, n, z=z) for size, z in (("0.5", 1.0), ("1.0", 3.0)) for n in range(3))
    )
    verdict.summarise(tmp_path)
    for given in ({"only": "drift.* 1.0$"}, {"matters": str(tmp_path / "summary.json")}):
        (jobs,) = verdict.planned(asked(right=0, **given), set())
        assert jobs == [(drift, "1.0", 0)]


def test_a_fit_that_hangs_is_ended_and_counted(verdict, tmp_path):
    verdict.run(asked(only="1 state, T", limit=0.0, out=tmp_path))
    (one,) = verdict.trials(tmp_path)
    assert one["kind"] == "timed out" and one["number"] == 0
    verdict.run(asked(only="1 state, T", limit=0.0, out=tmp_path))  # nothing is left to do
    assert len(verdict.trials(tmp_path)) == 1


def test_lines_of_several_files_become_tables_between_the_markers(verdict, tmp_path, monkeypatch):
    model, trouble = "Gaussian, 1 state, T = 300", ("levels drift, in sd from end to end", "0.5")
    (tmp_path / "a.jsonl").write_text(kept(model, None, 0) + kept(*trouble, 0, "the model does not fit", ["levels"]))
    (tmp_path / "b.jsonl").write_text(kept(model, None, 0) + kept(model, None, 1, "biased") + kept(*trouble, 1))
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["verdict.py", "--page", str(page), "--out", str(tmp_path)])
    verdict.main()
    verdict.main()
    text = page.read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {model} | 2 | 0 | 0 | 1 |")]
    assert row.endswith("| 1 | 1.00 | 50 % |")
    assert f"| {trouble[0]} | 0.5 | 2 | 50 % | 3 % | levels 1 | 1.0 | 50 % | 0.0 | no |" in text
    assert "1 of 2 fits were given a reason for distrust, 50.00 %" in text and "is missed" in text
    assert text.count("| right model |") == 1 and "## A wrong model can still be useful" in text


def test_troubles_that_matter_and_are_missed_are_named(verdict, tmp_path):
    """Means that are off by two sd, root mean square, move an interval by more than half its width."""
    drift = "levels drift, in sd from end to end"
    lines = [
        kept(drift, "2.0", n, "trust" if n == 0 else "the model does not fit", z=(-1) ** n * 2.0) for n in range(20)
    ]
    lines += [kept(drift, "1.0", n, "trust" if n < 2 else "the model does not fit", z=2.0) for n in range(20)]
    lines += [kept(drift, "0.5", n, z=1.5) for n in range(20)] + [kept(drift, "2.0", 20, "timed out")]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    text = verdict.summarise(tmp_path)
    assert "half its width: 2 of 3; seen in at least 95 % of fits: 1, and with a confidence of 95 % each: 0." in text
    assert text.count("Missed:") == 1 and f"Missed: {drift} 1.0, seen in 90 %." in text
    assert "| 95 % | 78 % | timed out 1 |" in text and "| 1.7 | yes |" in text


@pytest.mark.slow
def test_every_case_can_be_made(verdict):
    import numpy as np
    from verdict_cases import right_cases, trouble_cases

    every = [case for case in (*right_cases(), *trouble_cases()) if "1,000,000" not in case.name]
    assert len({(case.name, case.strength) for case in every}) == len(every) > 60
    for case in every:
        trial = case.make(np.random.default_rng(1))
        trial.model.opened(trial.data)
        assert set(trial.truth) <= {"transition", *trial.model.emission.parameters(trial.model.n_states)}


def test_chains_that_begin_apart_are_taken_together(verdict):
    import numpy as np
    from verdict_cases import chains_apart

    trial = chains_apart(1, np.random.default_rng(1))
    posterior = verdict.fitted(trial._replace(options={**trial.options, "draws": 40, "warmup": 10}))
    means = np.asarray(posterior.draws["mean"])
    assert means.shape == (4, 40, 3) and np.all(means[0, :, 1] < 0) and np.all(means[1:, :, 1] > 0)
