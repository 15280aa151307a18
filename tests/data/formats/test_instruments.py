"""Formats of instruments, written by the libraries of the field and read back."""

import datetime
import pickle
import sys

import numpy as np
import pytest

from longhmm.data.formats import open_source
from longhmm.data.sequences import open_data
from longhmm.errors import DataError

RNG = np.random.default_rng(0)


@pytest.fixture
def abf(tmp_path):
    pyabf = pytest.importorskip("pyabf")
    sweeps = RNG.normal(50, 10, (3, 4000)).astype(np.float32)
    pyabf.abfWriter.writeABF1(sweeps, str(tmp_path / "a.abf"), 20_000, units="pA")
    return tmp_path / "a.abf", sweeps


def test_abf_sweeps_are_sequences_at_the_rate_of_the_file(abf):
    path, sweeps = abf
    data = open_data(path)
    assert (data.rate, data.unit, data.dim, data.n_sequences) == (20_000.0, "pA", 1, 3)
    np.testing.assert_array_equal(data.offsets, [0, 4000, 8000, 12000])
    step = np.abs(sweeps).max() / 2**14  # the writer scales to 16 bits, with some room
    np.testing.assert_allclose(data.rows(0, 12000).values[:, 0], sweeps.ravel(), atol=step)
    np.testing.assert_array_equal(data.rows(3990, 4020).values, data.rows(0, 12000).values[3990:4020])


def test_abf_agrees_with_its_own_library(abf):
    import pyabf

    path, _ = abf
    reference = pyabf.ABF(str(path))
    np.testing.assert_allclose(open_source(path).read(0, 12000)[:, 0], reference.data[0], rtol=1e-6)


def test_several_abf_files_keep_their_sweeps_and_rate(abf):
    path, _ = abf
    data = open_data([path, path])
    assert (data.n_sequences, data.rate, data.unit) == (6, 20_000.0, "pA")


def test_a_cut_off_abf_file_is_reported(abf):
    path, _ = abf
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="ends early, after sample"):
        open_source(path)
    path.write_bytes(b"not an ABF file at all")
    with pytest.raises(DataError, match=r"a\.abf cannot be read"):
        open_source(path)


def write_edf(path, rates=(100, 100)):
    pyedflib = pytest.importorskip("pyedflib")
    signals = [RNG.uniform(-90, 90, rate * 4) for rate in rates]
    headers = [
        {
            "label": f"lead{i}",
            "dimension": "uV",
            "sample_frequency": rate,
            "physical_min": -100,
            "physical_max": 100,
            "digital_min": -32768,
            "digital_max": 32767,
        }
        for i, rate in enumerate(rates)
    ]
    pyedflib.highlevel.write_edf(str(path), signals, headers)
    return signals


def test_edf_signals_by_label_with_rate_and_unit(tmp_path):
    signals = write_edf(tmp_path / "a.edf")
    source = open_source(tmp_path / "a.edf")
    assert (source.length, source.dim, source.rate, source.unit) == (400, 2, 100.0, "uV")
    np.testing.assert_allclose(source.read(0, 400), np.stack(signals, axis=1), atol=200 / 65535)
    one = pickle.loads(pickle.dumps(open_source(tmp_path / "a.edf", columns=["lead1"])))
    np.testing.assert_allclose(one.read(17, 90)[:, 0], signals[1][17:90], atol=200 / 65535)
    with pytest.raises(DataError, match="no column 'lead7'"):
        open_source(tmp_path / "a.edf", columns=["lead7"])


def test_edf_signals_of_different_rates_must_be_chosen(tmp_path):
    write_edf(tmp_path / "a.edf", rates=(100, 50))
    with pytest.raises(DataError, match=r"different rates \(lead0 at 100 Hz, lead1 at 50 Hz"):
        open_source(tmp_path / "a.edf")
    assert open_source(tmp_path / "a.edf", columns="lead1").rate == 50.0


def test_wfdb_records(tmp_path):
    wfdb = pytest.importorskip("wfdb")
    values = RNG.normal(size=(300, 2))
    values[5, 0] = np.nan
    header = {"fs": 360, "units": ["mV", "mV"], "sig_name": ["I", "II"], "fmt": ["16", "16"]}
    wfdb.wrsamp("rec", p_signal=values, write_dir=str(tmp_path), **header)
    for name in ("rec.hea", "rec.dat"):
        source = open_source(tmp_path / name)
        assert (source.length, source.dim, source.rate, source.unit) == (300, 2, 360.0, "mV")
        np.testing.assert_allclose(source.read(0, 300), values, atol=1e-3)
    one = open_source(tmp_path / "rec.hea", columns="II")
    np.testing.assert_allclose(one.read(10, 20)[:, 0], values[10:20, 1], atol=1e-3)
    (tmp_path / "rec.hea").unlink()
    with pytest.raises(DataError, match=r"no header rec\.hea beside it"):
        open_source(tmp_path / "rec.dat")


def test_nwb_series_in_physical_units(tmp_path):
    pynwb = pytest.importorskip("pynwb")
    raw = RNG.integers(-1000, 1000, (250, 2)).astype(np.int16)
    now = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    file = pynwb.NWBFile("a test", "id", now)
    series = {"data": raw, "unit": "volts", "rate": 5000.0, "conversion": 0.001}
    file.add_acquisition(pynwb.TimeSeries(name="current", **series))
    file.add_stimulus(pynwb.TimeSeries(name="command", data=np.zeros(50), unit="V", timestamps=np.arange(50) / 10.0))
    with pynwb.NWBHDF5IO(str(tmp_path / "a.nwb"), "w") as io:
        io.write(file)
    source = open_source(tmp_path / "a.nwb")  # the only acquired one
    assert (source.length, source.dim, source.rate, source.unit) == (250, 2, 5000.0, "volts")
    np.testing.assert_allclose(source.read(3, 40), raw[3:40] * 0.001, rtol=1e-6)
    other = open_source(tmp_path / "a.nwb", dataset="command")
    assert (other.length, other.dim) == (50, 1)
    assert other.rate == pytest.approx(10.0)
    with pytest.raises(DataError, match="no array named 'nothing'"):
        open_source(tmp_path / "a.nwb", dataset="nothing")


def test_rates_beside_arrays(tmp_path):
    import h5py

    np.savez(tmp_path / "a.npz", current=np.arange(5.0), dt=1e-4)
    data = open_data(tmp_path / "a.npz")
    assert data.rate == pytest.approx(10_000.0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["y"] = np.arange(5.0)
        file["y"].attrs["sampling_rate"] = 250
    assert open_data(tmp_path / "a.h5").rate == 250.0
    np.save(tmp_path / "a.npy", np.arange(5.0))
    assert open_data(tmp_path / "a.npy").rate is None


@pytest.mark.parametrize(
    ("ending", "library"),
    [
        ("abf", "pyabf"),
        ("edf", "pyedflib"),
        ("hea", "wfdb"),
        ("nwb", "h5py"),
        ("h5", "h5py"),
        ("parquet", "pyarrow"),
    ],
)
def test_a_missing_library_is_named(tmp_path, monkeypatch, ending, library):
    monkeypatch.setitem(sys.modules, library, None)  # an import of it fails
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"something")
    with pytest.raises(DataError, match=f"needs {library}; install it with: pip install {library}$"):
        open_source(path)
