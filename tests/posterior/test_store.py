"""Saved runs: bit for bit the same when read back, whole or absent on disk, and harmless wherever they come from."""

import json
import shutil

import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr
import zarr

from longhmm import Emission, Gaussian
from longhmm.errors import DataError, LongHMMError, ModelError
from longhmm.model.hmm import HMM
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.posterior.diagnostics.verdict import Verdict
from longhmm.posterior.posterior import Posterior, load
from posterior.fakes import chains_of, gaussian_model, unconstrained


def make(model=None):
    model = model or gaussian_model()
    rng = np.random.default_rng(0)
    natural = {"transition": rng.dirichlet([9.0, 2.0], size=(2, 7, 2)), "mean": rng.normal(size=(2, 7, 2))}
    natural["mean"].sort(axis=2)
    point = {name: value[0, 0] for name, value in unconstrained(model, natural).items()}
    return Posterior.from_chains(
        model, chains_of(model, natural, mode=point, information=rng.normal(size=(4, 4)), notes=("stopped early",))
    )


@pytest.fixture
def saved(tmp_path):
    make().save(tmp_path / "run")
    return tmp_path / "run"


def test_round_trip_is_exact(tmp_path):
    posterior = make()
    posterior.verdict = Verdict("biased", "the mean is off.", {"shift": 0.3, "shift_of": "mean[0]"})
    posterior.settings["numbers"] = (np.float64(0.1), np.int32(3), np.arange(2))
    posterior.save(tmp_path / "run")
    again = load(tmp_path / "run")
    for name in ("draws", "unconstrained", "sample_stats"):
        one, other = getattr(posterior, name), getattr(again, name)
        xr.testing.assert_identical(one, other)
        assert {k: v.dtype for k, v in one.variables.items()} == {k: v.dtype for k, v in other.variables.items()}
    assert again.sample_stats["finite"].dtype == bool
    assert list(again.draws.data_vars) == list(posterior.draws.data_vars)
    assert all(np.array_equal(posterior.mode[name], again.mode[name]) for name in posterior.mode)
    assert np.array_equal(posterior.information, again.information)
    assert again.notes == ("stopped early",)
    assert again.verdict == posterior.verdict
    assert again.settings["numbers"] == [0.1, 3, [0, 1]]
    assert model_to_config(again.model) == model_to_config(posterior.model)
    assert np.array_equal(again.params_at(1, 3)["mean"], posterior.params_at(1, 3)["mean"])


def test_values_that_are_not_finite_survive(tmp_path):
    posterior = make()
    posterior.sample_stats["log_likelihood"][0, 0] = np.nan
    posterior.sample_stats["log_likelihood"][0, 1] = -np.inf
    posterior.save(tmp_path / "run")
    xr.testing.assert_identical(load(tmp_path / "run").sample_stats, posterior.sample_stats)


@pytest.mark.parametrize(
    "model",
    [
        gaussian_model(2, transition_prior=np.array([[1.0, 0.5], [0.0, 2.0]]), initial=[0.25, 0.75]),
        gaussian_model(2, fixed_rows={1: [0.25, 0.75]}, initial="stationary"),
        HMM(2, Gaussian(dim=2)).resolve(np.random.default_rng(0).normal(size=(50, 2))),
    ],
)
def test_models_are_rebuilt(model):
    config = json.loads(json.dumps(model_to_config(model)))
    again = model_from_config(config)
    assert model_to_config(again) == model_to_config(model)
    assert repr(again) == repr(model)


def test_a_model_with_own_code_is_asked_for(tmp_path):
    def shifted(mean):
        return dist.Normal(mean + 1.0, 1.0)

    model = HMM(2, Emission(shifted, mean=dist.Normal(0, 1)))
    natural = {"transition": np.full((1, 3, 2, 2), 0.5), "mean": np.tile([0.0, 1.0], (1, 3, 1))}
    Posterior.from_chains(model, chains_of(model, natural)).save(tmp_path / "run")
    with pytest.raises(ModelError, match=r"load\(path, model="):
        load(tmp_path / "run")
    assert load(tmp_path / "run", model=model).n_draws == 3
    with pytest.raises(ModelError, match="pass the model of the run"):
        load(tmp_path / "run", model=gaussian_model(3))


def test_saving_again_replaces_the_run(saved):
    other = make()
    other.settings["sampler"] = "another"
    other.save(saved)
    assert load(saved).settings["sampler"] == "another"
    assert [path.name for path in saved.parent.iterdir()] == ["run"]


def test_an_interrupted_save_leaves_the_old_run(saved, monkeypatch):
    def fails(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(xr.Dataset, "to_zarr", fails)
    with pytest.raises(DataError, match="disk full"):
        make().save(saved)
    monkeypatch.undo()
    assert load(saved).n_draws == 7
    assert [path.name for path in saved.parent.iterdir()] == ["run"]


def test_nothing_foreign_is_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(DataError, match="not a saved longhmm run"):
        make().save(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def edit(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def array_metadata(saved):
    return saved / "arrays.zarr" / "draws" / "mean" / "zarr.json"


UNKNOWN = {"distribution": "util"}
HOSTILE = {
    "does not exist": shutil.rmtree,
    r"has no longhmm\.json": lambda run: (run / "longhmm.json").unlink(),
    "cannot be read": lambda run: (run / "longhmm.json").write_text('{"format": "longhmm post'),
    "does not describe a longhmm posterior": lambda run: (run / "longhmm.json").write_text('["x"]'),
    "format version 99": lambda run: edit(run / "longhmm.json", lambda d: d.update(version=99)),
    "must list the groups": lambda run: edit(run / "longhmm.json", lambda d: d.update(groups=["../../etc"])),
    "draws is missing": lambda run: shutil.rmtree(run / "arrays.zarr" / "draws"),
    "complete posterior": lambda run: edit(run / "longhmm.json", lambda d: d.update(groups=["draws"])),
    "does not hold a complete": lambda run: edit(run / "longhmm.json", lambda d: d["model"].pop("emission")),
    "holds parameters of shapes": lambda run: shutil.rmtree(run / "arrays.zarr" / "draws" / "mean"),
    "plain numbers": lambda run: edit(array_metadata(run), lambda d: d["codecs"].append({"name": "numcodecs.pickle"})),
    "not opened": lambda run: edit(array_metadata(run), lambda d: d.update(data_type="variable_length_bytes")),
    "must be one of ar, bernoulli": lambda run: edit(
        run / "longhmm.json", lambda d: d["model"]["emission"].update(family="os.system")
    ),
    "which NumPyro does not have": lambda run: edit(
        run / "longhmm.json",
        lambda d: d["model"]["emission"].update(family="distribution", options={"distribution": UNKNOWN}),
    ),
    "known kind": lambda run: edit(
        run / "longhmm.json", lambda d: d.update(verdict={"kind": "x", "reason": "", "details": {}})
    ),
}


@pytest.mark.parametrize("complaint", HOSTILE)
def test_damaged_and_hostile_directories_are_refused_in_one_sentence(saved, complaint):
    HOSTILE[complaint](saved)
    with pytest.raises(LongHMMError, match=complaint) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_a_damaged_chunk_is_noticed(saved):
    chunk = next(path for path in (saved / "arrays.zarr" / "draws" / "mean" / "c").rglob("*") if path.is_file())
    chunk.write_bytes(b"garbage")
    with pytest.raises(DataError, match="cannot be read"):
        load(saved)


def test_a_pickled_array_is_never_opened(saved, tmp_path):
    """The older Zarr format can hold pickled objects; a run that contains one is refused before it is read."""
    folder = saved / "arrays.zarr" / "draws"
    shutil.rmtree(folder / "mean")
    flag = tmp_path / "executed"
    trap = folder / "mean"
    trap.mkdir()
    filters = [{"id": "pickle", "protocol": 5}]
    metadata = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "compressor": None, "filters": filters}
    (trap / ".zarray").write_text(json.dumps({**metadata, "fill_value": None, "order": "C"}))
    (trap / "0").write_bytes(b"cbuiltins\nopen\n(V" + str(flag).encode() + b"\nVw\ntR.")
    with pytest.raises(DataError, match="the run is not opened"):
        load(saved)
    assert not flag.exists()


def test_plain_directories_and_files_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    zarr.create_group(tmp_path / "other.zarr")
    for name in ("file", "other.zarr"):
        with pytest.raises(DataError, match="is not a saved longhmm run"):
            load(tmp_path / name)


def test_settings_that_cannot_be_stored_are_named(tmp_path):
    posterior = make()
    posterior.settings["callback"] = print
    with pytest.raises(DataError, match="plain numbers"):
        posterior.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
