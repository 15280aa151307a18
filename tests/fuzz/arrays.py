"""Arrays in memory that no one would choose: odd shapes and dtypes, NaN, infinities, constants, enormous scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import longhmm as lh
from fuzz.outcome import Case
from longhmm.backends.read import partly_observed

DTYPES = ("f2", "f4", "f8", "g", ">f4", "i1", "i4", "u8", "?", "c8", "O", "U3", "S2", "M8[s]", "m8[s]", "i4,f4")
SHAPES = ((0,), (1,), (2,), (3, 1), (50,), (50, 1), (50, 2), (50, 0), (0, 3), (), (4, 5, 6), (1, 300), (200, 1))
PATTERNS = (
    "random",
    "constant",
    "two values",
    "zeros",
    "all missing",
    "some missing",
    "first seen only",
    "infinite",
    "minus infinite",
    "enormous",
    "tiny",
    "mixed scales",
    "huge integers",
    "rising",
    "nearly constant",
)
EMISSIONS = tuple(
    getattr(lh, name) for name in ("Gaussian", "Poisson", "StudentT", "LogNormal", "Gamma", "NegativeBinomial")
)


def values(rng: np.random.Generator, pattern: str, shape: tuple[int, ...]) -> np.ndarray:
    """float64 values of a pattern."""
    found = rng.normal(size=shape)
    match pattern:
        case "constant":
            found = np.full(shape, rng.normal())
        case "two values":
            found = rng.choice([0.0, 1.0], shape)
        case "zeros":
            found = np.zeros(shape)
        case "all missing":
            found = np.full(shape, np.nan)
        case "some missing":
            found = np.where(rng.random(shape) < 0.5, np.nan, found)
        case "first seen only":
            found = np.full(shape, np.nan)
            found[:1] = 1.0
        case "infinite" | "minus infinite":
            sign = 1 if pattern == "infinite" else -1
            found = np.where(rng.random(shape) < 0.1, sign * np.inf, found)
        case "enormous":
            found = found * 1e300
        case "tiny":
            found = found * 1e-300
        case "mixed scales":
            found = found * 10.0 ** rng.integers(-200, 200, shape)
        case "huge integers":
            found = np.floor(rng.random(shape) * 2.0**62)
        case "rising":
            found = np.arange(found.size, dtype=float).reshape(shape)
        case "nearly constant":
            found = 1e8 + found * 1e-9
    return found


def odd_array(rng: np.random.Generator) -> tuple[str, Any]:
    """An array, a list or something else, with a name."""
    pattern, dtype = str(rng.choice(PATTERNS)), str(rng.choice(DTYPES))
    shape = SHAPES[rng.integers(len(SHAPES))]
    made = values(rng, pattern, shape) if shape else np.float64(1.0)
    if dtype == "i4,f4":
        array: Any = np.zeros(shape, dtype)
    else:
        with np.errstate(all="ignore"):
            array = (
                np.nan_to_num(np.asarray(made)).astype("i8").astype(dtype) if dtype[0] in "Mm" else _cast(made, dtype)
            )
    form = int(rng.integers(8))
    name = f"{pattern} {dtype} {shape}"
    if form == 0:
        return f"list of {name}", array.tolist()
    if form == 1:
        return f"sequences of {name}", [array, array]
    if form == 2:
        return f"strided {name}", array[::-2] if array.ndim else array
    if form == 3:
        return f"mixed sequences of {name}", [array, np.arange(4.0), "no data"]
    return name, array


def _cast(made: Any, dtype: str) -> np.ndarray:
    return np.asarray(made).astype(dtype)


def array_case(seed: int) -> Case:
    """Open an array, check a model against it, read it, look for starting points."""
    rng = np.random.default_rng([seed, 1])
    name, data = odd_array(rng)
    emission = EMISSIONS[rng.integers(len(EMISSIONS))]
    n_states = int(rng.choice([1, 2, 3, 10, 100]))
    options: dict[str, Any] = {}
    if rng.random() < 0.15:
        options["mask"] = [np.zeros(3), "yes", np.array([2.0, np.nan]), True, [[1]]][rng.integers(5)]
    if rng.random() < 0.15:
        options["states"] = [np.arange(50), [-5], "no", np.full(50, 0.5), np.full((50, 3), 1)][rng.integers(5)]
    if rng.random() < 0.15:
        options["lengths"] = [[1, 49], [0, 50], [-1, 51], [25], "many", [1e9], 5, [[2]]][rng.integers(8)]
    if rng.random() < 0.1:
        options["columns"] = [[0], [7], ["x"], [], -1, None, [0, 0], 1.5][rng.integers(8)]

    def run(folder: Path) -> None:
        sequences = lh.open_data(data, **options)
        sequences.rows(0, sequences.length)
        model = lh.HMM(n_states, emission())
        model.check_dim(sequences)
        resolved = model.resolve(sequences)
        partly_observed(resolved, sequences)

    return Case(f"array {seed}: {emission.__name__} {n_states} on {name} with {sorted(options)}", run)
