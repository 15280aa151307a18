"""What the golden results are: everything exact that longhmm says of a case, as flat mappings of names to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import longhmm as lh
from golden.cases import Arrays, Case, gaussian_line, mean_and_sd

ROWS = 48  # of state probabilities that are stored; their sums over all rows are stored, too
SEED = 3  # of sampled paths


def opened(case: Case, folder: Path | None = None) -> Any:
    """The case's data in memory, or in .npy files in a folder."""
    data = case.data
    if folder is not None:
        many = isinstance(data, list)
        paths = [folder / f"{number}.npy" for number in range(len(data) if many else 1)]
        for path, values in zip(paths, data if many else [data], strict=True):
            np.save(path, values)
        data = paths if many else paths[0]
    return lh.open_data(data, **case.options)


def exact(case: Case, data: Any) -> Arrays:
    """Log likelihood, gradients, prior, coordinates and decoded path: all in float64 or whole numbers.

    Expected numbers of transitions are in the gradient of the log likelihood: with those of the first states (see
    `probabilities`) they are all that its part "transition" is made of.
    """
    model, params = case.model.resolve(data), case.params
    results: Arrays = {
        "log_likelihood": np.array(lh.log_likelihood(model, params, data)),
        "decoded": lh.decode(model, params, data).astype(np.int8),
    }
    for of, prior in (("posterior", True), ("likelihood", False)):
        slope = lh.gradient(model, params, data, prior=prior)
        results |= {f"gradient of {of}, {name}": value for name, value in by_name(case, model, slope).items()}
    # Coordinates of a spread may change by a factor, and their density by a constant: differences know of neither.
    densities = [lh.log_prior(model, each) for each in (params, moved(case, model))]
    results["log prior, difference"] = np.array(densities[1] - densities[0])
    if not case.gaussian_line:
        results["log prior"] = np.array([densities[0], lh.log_prior(model, params, unconstrained=False)])
        results |= {f"coordinate {name}": value for name, value in lh.unconstrain(model, params).items()}
    return results


def probabilities(case: Case, data: Any) -> Arrays:
    """State probabilities, which are float32: some rows, the first of every sequence, and sums over all."""
    model = case.model.resolve(data)
    first = np.cumsum([0, *sequence_lengths(case)[:-1]])
    results = {}
    for name, causal in (("smoothed", False), ("filtered", True)):
        found = lh.state_probabilities(model, case.params, data, causal=causal)
        results[name] = found[np.linspace(0, len(found) - 1, ROWS).astype(int)]
        results[f"{name}, first"] = found[first]
        results[f"{name}, mean"] = found.mean(0, dtype=np.float64)
    return results


def sampled_paths(case: Case, data: Any) -> np.ndarray:
    """Two paths of states from their posterior."""
    return lh.sample_states(case.model.resolve(data), case.params, data, draws=2, seed=SEED).astype(np.int8)


def sequence_lengths(case: Case) -> list[int]:
    if isinstance(case.data, list):
        return [len(each) for each in case.data]
    return list(case.options.get("lengths", [len(case.data)]))


def moved(case: Case, model: Any) -> Arrays:
    """Other parameters, at which the prior is asked, too."""
    if case.gaussian_line:
        mean, sd = mean_and_sd(case.params)
        n_states = len(case.params["transition"])
        transition = 0.9 * case.params["transition"] + 0.1 * np.eye(n_states)
        return {"transition": transition, **gaussian_line(mean + 0.3, 1.2 * sd)}
    coordinates = lh.unconstrain(model, case.params)
    return lh.constrain(model, {name: value + 0.1 for name, value in coordinates.items()})


def by_name(case: Case, model: Any, slope: Mapping[str, np.ndarray]) -> Arrays:
    """A gradient by name; of a Gaussian in one dimension with respect to its means and the logarithms of its sds."""
    if not case.gaussian_line:
        return dict(slope)
    mean, sd = mean_and_sd(case.params)
    along = [
        sum(np.sum(slope[name] * step) for name, step in _derivative(case, model, mean, sd, each).items())
        for each in np.eye(len(mean))
    ]
    return {"transition": slope["transition"], "mean": slope["mean"].ravel(), "log sd": np.array(along)}


def _derivative(case: Case, model: Any, mean: np.ndarray, sd: np.ndarray, direction: np.ndarray) -> Arrays:
    """Of the coordinates with respect to log sd in one direction, by differences of fourth order."""
    width = 1e-3

    def at(times: int) -> Arrays:
        params = {**case.params, **gaussian_line(mean, sd * np.exp(times * width * direction))}
        return lh.unconstrain(model, params)

    values = {times: at(times) for times in (-2, -1, 1, 2)}
    return {
        name: (8 * (values[1][name] - values[-1][name]) - (values[2][name] - values[-2][name])) / (12 * width)
        for name in values[1]
    }
