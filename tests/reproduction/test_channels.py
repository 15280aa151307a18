"""The recipe for channels, the reader of the paper's recording, its substitutes, and how speed is measured."""

import numpy as np
import pytest

from longhmm.errors import DataError
from longhmm_reproduction import channels, ion
from longhmm_reproduction.document import Document
from longhmm_reproduction.exact import Exact
from longhmm_reproduction.targets import chains_settled, ratios, settled
from reproduction import made_up


@pytest.fixture
def no_recordings(monkeypatch, tmp_path):
    monkeypatch.delenv(channels.ALAMETHICIN, raising=False)
    monkeypatch.setenv(channels.FOLDER, str(tmp_path))


def test_the_recipe_decimates_takes_logarithms_and_normalises():
    values = np.exp(np.arange(1.0, 101.0) / 10)
    prepared = channels.prepare(values, 10)
    assert prepared.shape == (10,)
    np.testing.assert_allclose(np.diff(prepared), prepared[1] - prepared[0], rtol=1e-4)  # logarithms are evenly spaced
    assert prepared.mean() == pytest.approx(0.0, abs=1e-6) and prepared.std() == pytest.approx(1.0, rel=1e-5)


def test_values_that_are_not_positive_are_left_as_they_are():
    np.testing.assert_allclose(channels.prepare(np.array([-1.0, 0.0, 1.0]), 1), np.array([-1, 0, 1]) / np.sqrt(2 / 3))


def test_the_papers_recording_is_read_where_the_user_has_it(tmp_path, monkeypatch):
    from scipy.io import savemat

    file = tmp_path / "alamethicin.mat"
    savemat(file, {"originaldata": np.random.default_rng(0).normal(5.0, 0.1, size=(1000, 1))})
    monkeypatch.setenv(channels.ALAMETHICIN, str(file))
    (found,), missing = channels.records(4)
    assert (found.name, found.substitute, found.values.shape, missing) == ("alamethicin", False, (20,), None)


def test_a_missing_or_wrong_file_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        channels.read_alamethicin(tmp_path / "none.mat")
    from scipy.io import savemat

    savemat(tmp_path / "other.mat", {"x": np.zeros(3)})
    with pytest.raises(DataError, match="originaldata"):
        channels.read_alamethicin(tmp_path / "other.mat")


def test_without_it_the_nanopore_is_named_as_a_substitute_and_what_is_not_there_is_said(no_recordings):
    (found,), missing = channels.records(2)
    assert found.substitute and found.name == "nanopore" and len(found.values) == 250_000
    assert "1ch_outfinaltest10.npz" in missing and channels.FOLDER in missing
    assert channels.records(1).missing is None


def test_deep_channel_records_are_substitutes_where_they_are(no_recordings, tmp_path):
    (tmp_path / "deep_channel").mkdir()
    for name in channels.DEEP_CHANNEL:
        np.savez(tmp_path / "deep_channel" / f"{name}.npz", current=np.linspace(-1.0, 1.0, 50, dtype=np.float32))
    found, missing = channels.records(4)
    assert [each.name for each in found] == ["nanopore", "1ch-10", "3ch-1", "3ch-2"] and missing is None
    assert [each.states for each in found[1:]] == [2, 4, 4] and all(each.substitute for each in found)
    assert [len(each.values) for each in found[1:]] == [50] * 3


def test_starts_have_rising_levels_and_flat_rows():
    rng = np.random.default_rng(0)
    train = np.concatenate([rng.normal(level, 0.1, size=(300, 1)) for level in (2.0, 0.0, 1.0)])
    starts = ion._starts(train, 3, 2, seed=0)
    for start in starts:
        np.testing.assert_allclose(start["mean"], [0.0, 1.0, 2.0], atol=0.05)
        np.testing.assert_allclose(start["sd"], 0.1, rtol=0.15)
        np.testing.assert_array_equal(start["transition"], np.full((3, 3), 1 / 3))


def exact(*rows, heights):
    """Chains of two draws each about some first rows."""
    transition = np.array([[[[row + off, 1 - row - off], [0.2, 0.8]] for off in (-0.01, 0.01)] for row in rows])
    mean = np.broadcast_to(np.array([[0.0], [1.0]]), (len(rows), 2, 2, 1))
    return Exact({"transition": transition, "mean": mean}, np.repeat(np.array(heights)[:, None], 2, 1), 1.0, 2.0)


def test_the_reference_is_the_mean_of_the_chains_that_found_the_highest_mode(monkeypatch):
    monkeypatch.setattr(ion, "held_out_log_prob", lambda *_: -1.0)
    found = exact(0.9, 0.8, 0.3, heights=[-100.0, -101.0, -900.0])
    judge = ion.Judge(ion.flat_model(2), found, np.zeros((4, 1)), np.zeros((2, 1)))
    np.testing.assert_allclose(judge.reference["transition"], [[0.85, 0.15], [0.2, 0.8]])
    shifted = {**judge.reference, "transition": np.array([[0.85, 0.15], [0.5, 0.5]])}
    assert judge(shifted)["transition_error"] == pytest.approx(0.3 * np.sqrt(2))
    # Of the two chains that count, each is as far from the other as they are apart: nothing is its own measure.
    np.testing.assert_allclose(judge.reference_itself(found)["transition_error"], 0.1 * np.sqrt(2))


def test_the_target_does_not_depend_on_how_long_chains_ran():
    judge = ion.Judge(ion.flat_model(2), exact(0.9, 0.9, heights=[0.0, 0.0]), np.zeros((4, 1)), np.zeros((2, 1)))

    def speed(looks):
        found = Document("ion", "tiny", 0, {})
        for method, pace in (("buffered", 1.0), ("batch", 50.0)):
            curve = made_up.curve(looks)
            curve["seconds"] = [pace * each for each in curve["seconds"]]
            found.curves[method], found.results[method] = curve, {}
        return ion._speed(found, judge, "")

    short, long = speed(40), speed(400)
    norm = np.linalg.norm([[0.4, -0.4], [-0.3, 0.3]])
    assert short["target_error"] == long["target_error"] == pytest.approx(ion.TARGET * norm)
    assert short["speed_ratio"] == long["speed_ratio"] and short["speed_ratio"]["values"] == pytest.approx([50.0, 50.0])


def test_a_curve_has_settled_once_it_stays_below():
    at = [1.0, 2.0, 3.0, 4.0]
    assert settled(at, [0.9, 0.7, 0.3, 0.1], 0.5) == pytest.approx(2.5)
    assert settled(at, [0.9, 0.1, 0.9, 0.1], 0.5) == pytest.approx(3.5)  # a lucky look is not an arrival
    assert settled(at, [0.4, 0.3, 0.2, 0.1], 0.5) == 1.0
    assert settled(at, [0.4, 0.3, 0.2, 0.6], 0.5) == np.inf and settled(at, [np.nan] * 4, 0.5) == np.inf
    assert chains_settled(at, [[0.9, 0.1], [0.9, 0.1], [0.1, 0.1], [0.1, 0.1]], 0.5) == [pytest.approx(2.5), 1.0]


def test_ratios_are_those_of_chains_with_the_same_start():
    found = ratios([1.0, 2.0, np.inf], [10.0, np.inf, 5.0], 100.0)
    assert found.values == [10.0, 50.0] and (found.at_least, found.undecided) == (1, 1)


def test_the_help_of_the_command_names_where_recordings_are_looked_for():
    from typer.testing import CliRunner

    from longhmm.cli import app

    said = CliRunner().invoke(app, ["reproduce", "--help"]).output
    assert channels.ALAMETHICIN in said and channels.FOLDER in said
