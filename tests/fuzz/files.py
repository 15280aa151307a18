"""Malformed files of every supported format: cut short, bits flipped, zeroed, mislabelled, with code hidden inside."""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import longhmm as lh
from fuzz.outcome import Case, Lost

MOST_ROWS = 200_000  # read of each file; a damaged header may promise any number


def _npy(path: Path) -> None:
    np.save(path, np.random.default_rng(0).normal(size=(300, 2)))


def _npz(path: Path) -> None:
    np.savez_compressed(path, y=np.arange(300.0), rate=100.0)


def _h5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset(
            "y", data=np.random.default_rng(0).normal(size=(300, 2)), chunks=(50, 2), compression="gzip"
        )
        file["y"].attrs["rate"] = 100.0


def _nwb(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["acquisition/current/data"] = np.arange(300, dtype="i2")
        file["acquisition/current/data"].attrs["conversion"] = 0.5
        file["acquisition/current/starting_time"] = 0.0
        file["acquisition/current/starting_time"].attrs["rate"] = 1000.0


def _parquet(path: Path) -> None:
    import pandas as pd

    pd.DataFrame({"a": np.arange(300.0), "b": np.arange(300)}).to_parquet(path, row_group_size=100)


def _text(mark: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        rng = np.random.default_rng(0)
        rows = [f"{a:.3f}{mark}{b}" for a, b in zip(rng.normal(size=300), rng.integers(0, 9, 300), strict=True)]
        path.write_text("\n".join([f"volts{mark}count", *rows]) + "\n")

    return write


def _abf(path: Path) -> None:
    import pyabf

    pyabf.abfWriter.writeABF1(
        np.random.default_rng(0).normal(50, 10, (2, 300)).astype("f4"), str(path), 1000, units="pA"
    )


def _edf(path: Path) -> None:
    import pyedflib

    signals = [np.random.default_rng(0).uniform(-90, 90, 300)]
    header = {"label": "lead", "dimension": "uV", "sample_frequency": 100, "physical_min": -100, "physical_max": 100}
    header |= {"digital_min": -32768, "digital_max": 32767}
    pyedflib.highlevel.write_edf(str(path), signals, [header])


def _wfdb(path: Path) -> None:
    import wfdb

    signal = np.random.default_rng(0).normal(size=(300, 1))
    wfdb.wrsamp(
        path.stem, fs=100, units=["mV"], sig_name=["I"], p_signal=signal, fmt=["16"], write_dir=str(path.parent)
    )


WRITERS: dict[str, Callable[[Path], None]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".h5": _h5,
    ".nwb": _nwb,
    ".parquet": _parquet,
    ".csv": _text(","),
    ".tsv": _text("\t"),
    ".txt": _text(" "),
    ".abf": _abf,
    ".edf": _edf,
    ".hea": _wfdb,
    ".dat": _wfdb,
}
METADATA = [
    ("float64", "object"),
    ("300", "10000000000000"),
    ("300", "-3"),
    ('"v', '"w'),
    ("zstd", "nosuch"),
    ("50", "0"),
    ("50", "999999999999"),
    ("float64", "string"),
    ("zarr_format", "x"),
]


@functools.cache
def whole(kind: str) -> dict[str, bytes]:
    """The files of a sound recording, by name."""
    with tempfile.TemporaryDirectory() as place:
        WRITERS[kind](Path(place) / f"y{kind}")
        return {file.name: file.read_bytes() for file in Path(place).iterdir()}


def damage(rng: np.random.Generator, content: bytes) -> tuple[str, bytes]:
    """A name for what was done, and the bytes after it."""
    size = len(content)
    what = int(rng.integers(10))
    if what == 0:
        return "cut", content[: int(rng.integers(size))]
    if what == 1:
        return "empty", b""
    if what == 2:
        return "garbage", rng.bytes(int(rng.integers(1, 3000)))
    if what == 3:
        start = int(rng.integers(size))
        return "zeroed", content[:start] + bytes(min(50, size - start)) + content[start + 50 :]
    if what == 4:
        start = int(rng.integers(size))
        return "hole", content[:start] + content[start + int(rng.integers(1, 100)) :]
    if what == 5:
        start = int(rng.integers(size))
        return "inserted", content[:start] + rng.bytes(20) + content[start:]
    if what == 6:
        return "twice", content + content
    flips = int(rng.choice([1, 5, 50]))
    # Headers decide most, so that half of the flips fall there.
    within = size if rng.random() < 0.5 else min(size, 600)
    found = bytearray(content)
    for place in rng.integers(0, within, flips):
        found[place] ^= 1 << int(rng.integers(8))
    return f"{flips} flips", bytes(found)


class Code:
    """An object whose unpickling runs a command that leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch '{self.mark}'",)


def read_all(path: Path) -> None:
    """Open a file and read what it claims to hold, within reason."""
    data = lh.open_data(path)
    stop = min(data.length, MOST_ROWS)
    for start in range(0, stop, 50_000):
        data.rows(start, min(start + 50_000, stop))
    data.rows(max(0, data.length - 10), data.length)


def file_case(seed: int) -> Case:
    """One damaged file."""
    rng = np.random.default_rng([seed, 2])
    kind = list(WRITERS)[seed % len(WRITERS)]
    if seed % 7 == 0:
        return code_case(seed)
    if seed % 11 == 0:
        return zarr_case(seed)
    what, content = damage(rng, whole(kind)[f"y{kind}"])
    label = kind
    if rng.random() < 0.08:
        label = str(rng.choice([each for each in WRITERS if each not in (".hea", ".dat")]))
        content, what = whole(kind)[f"y{kind}"], f"a {kind} file"

    def run(folder: Path) -> None:
        for name, other in whole(kind).items():
            (folder / name).write_bytes(other)
        path = folder / f"y{label}"
        path.write_bytes(content)
        read_all(path)

    return Case(f"file {seed}: {label} {what}", run)


def code_case(seed: int) -> Case:
    """A pickle that would run a command, in all places where NumPy and others could look for one."""
    rng = np.random.default_rng([seed, 3])
    form = int(rng.integers(6))

    def run(folder: Path) -> None:
        mark = folder / "code-was-run"
        trap = np.array([Code(mark)], dtype=object)
        path = folder / ["y.npy", "y.npz", "y.npy", "y.npz", "y.csv", "y.h5"][form]
        match form:
            case 0:
                np.save(path, trap, allow_pickle=True)
            case 1:
                np.savez(path, y=trap)
            case 2 | 4 | 5:
                path.write_bytes(pickle.dumps(Code(mark)))
            case 3:
                np.savez(path, y=np.arange(5.0), rate=trap)
        try:
            read_all(path)
        finally:
            if mark.exists():
                raise Lost(f"code in {path.name} was run")

    return Case(f"file {seed}: code, form {form}", run)


def zarr_case(seed: int) -> Case:
    """A Zarr folder with one of its files damaged or removed, or a metadata entry changed."""
    rng = np.random.default_rng([seed, 4])

    def run(folder: Path) -> None:
        import zarr

        place = folder / "y.zarr"
        zarr.create_array(str(place), data=np.arange(300.0).reshape(-1, 1), chunks=(50, 1))
        files = sorted(file for file in place.rglob("*") if file.is_file())
        chosen = files[0] if rng.random() < 0.2 else place / "zarr.json" if rng.random() < 0.5 else files[-1]
        if rng.random() < 0.2:
            chosen.unlink()
        elif chosen.name == "zarr.json" and rng.random() < 0.5:
            text = chosen.read_text()
            old, new = METADATA[rng.integers(len(METADATA))]
            chosen.write_text(text.replace(old, new))
        else:
            chosen.write_bytes(damage(rng, chosen.read_bytes())[1])
        try:
            read_all(place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    return Case(f"file {seed}: .zarr", run)
