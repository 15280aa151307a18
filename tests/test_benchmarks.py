"""Benchmarks are run by hand: at least what they import from the package must exist."""

import ast
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import longhmm as lh

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_everything_that_is_imported_exists(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("longhmm"):
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


@pytest.mark.parametrize("name", ["product", "logit", "regression", "ar2", "noise", "drift", "rates", "durations"])
def test_calibration_cases_need_neither_tables_nor_formulas(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for absent in ("formulaic", "pandas"):
        monkeypatch.setitem(sys.modules, absent, None)
    calibration = importlib.import_module("calibration")
    model, sequences = calibration.data_of(name, 50)
    params = calibration.case(name, 50).params
    assert np.isfinite(lh.log_likelihood(model, params, sequences))
    coordinates = {key: np.stack([value, value + 0.1])[None] for key, value in lh.unconstrain(model, params).items()}
    columns = calibration.natural(model, coordinates)
    assert all(np.ptp(each) > 0 for each in columns.values())
    assert len(columns) >= sum(np.size(value) for value in lh.unconstrain(model, params).values())
