"""The recipe for channels, and the reader of the paper's recording."""

import numpy as np
import pytest

from longhmm.errors import DataError
from longhmm.experiments import ion


def test_the_recipe_decimates_takes_logarithms_and_normalises():
    values = np.exp(np.arange(1.0, 101.0) / 10)
    prepared = ion.prepare(values, 10)
    assert prepared.shape == (10,)
    np.testing.assert_allclose(np.diff(prepared), prepared[1] - prepared[0], rtol=1e-4)  # logarithms are evenly spaced
    assert prepared.mean() == pytest.approx(0.0, abs=1e-6) and prepared.std() == pytest.approx(1.0, rel=1e-5)


def test_values_that_are_not_positive_are_left_as_they_are():
    np.testing.assert_allclose(ion.prepare(np.array([-1.0, 0.0, 1.0]), 1), np.array([-1, 0, 1]) / np.sqrt(2 / 3))


def test_the_papers_recording_is_read_where_the_user_has_it(tmp_path, monkeypatch):
    from scipy.io import savemat

    file = tmp_path / "alamethicin.mat"
    savemat(file, {"originaldata": np.random.default_rng(0).normal(5.0, 0.1, size=(1000, 1))})
    monkeypatch.setenv(ion.ENVIRONMENT, str(file))
    found = ion.record()
    assert (found.name, found.substitute, found.values.shape) == ("alamethicin", False, (20,))


def test_a_missing_or_wrong_file_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        ion.read_alamethicin(tmp_path / "none.mat")
    from scipy.io import savemat

    savemat(tmp_path / "other.mat", {"x": np.zeros(3)})
    with pytest.raises(DataError, match="originaldata"):
        ion.read_alamethicin(tmp_path / "other.mat")


def test_without_it_the_nanopore_is_named_as_a_substitute(monkeypatch):
    monkeypatch.delenv(ion.ENVIRONMENT, raising=False)
    found = ion.record()
    assert found.substitute and found.name == "nanopore" and len(found.values) == 250_000
