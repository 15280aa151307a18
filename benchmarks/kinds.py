"""One calibration case for every kind of model beyond constant transitions and rows that are independent given states.

Models that see covariates are given columns of an array, not formulas: formulas need pandas and formulaic, and these
cases must run where there are only JAX, NumPyro and NumPy. The posteriors are those of the formulas named beside them.

    python benchmarks/calibration.py --cases ar2,product --workers 4 --effective 6000 --out docs/calibration
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

LENGTH = 100_000
SLOW2 = [[0.95, 0.05], [0.08, 0.92]]
KINDS = ("product", "logit", "regression", "ar2", "noise", "drift", "rates", "durations")


class Case(NamedTuple):
    """A model, true parameters, and how many rows with which covariates."""

    model: Any
    params: dict[str, Any]
    length: int
    covariates: np.ndarray | None = None


def day(length: int) -> np.ndarray:
    """`(length, 1)`, a covariate with a rhythm and weather of its own, no two rows alike."""
    noise = np.random.default_rng(3).normal(size=length)
    return (np.cos(2 * np.pi * np.arange(length) / 24) + 0.5 * noise)[:, None]


def column(values: np.ndarray) -> Any:
    """What stands in place of the prior of a parameter that follows the only column of an array, "~ x0"."""
    from longhmm.model.regression import Regression
    from longhmm.model.terms import Terms

    class Column(Regression):
        def __init__(self) -> None:
            self.formula = self.intercept = self.slope = None
            self.text, self.linear, self.is_met = "~ x0", Terms.among(("x0",), ("x0",), values), True

    return Column()


def product(length: int) -> Case:
    import longhmm as lh

    steps = {"step_concentration": [2.0, 5.0], "step_rate": [2.0, 1.0]}
    angles = {"angle_loc": [0.4, -0.2], "angle_concentration": [0.6, 3.0]}
    model = lh.HMM(2, lh.Product(step=lh.Gamma(), angle=lh.VonMises()))
    return Case(model, {"transition": SLOW2, **steps, **angles}, length)


def logit(length: int) -> Case:
    """`transitions="~ x0"`."""
    import longhmm as lh

    x = day(length)
    moves = lh.Logit(1).resolve(None, ("x0",), x)
    coefficients = [[[0.0, 0.0], [-3.0, 0.8]], [[-2.5, -0.6], [0.0, 0.0]]]
    model = lh.HMM(2, lh.Gaussian(), transitions=moves)
    return Case(model, {"coefficients": coefficients, "mean": [-1.0, 1.0], "sd": [0.8, 1.0]}, length, x)


def regression(length: int) -> Case:
    """`lh.Poisson(rate="~ x0")`."""
    import longhmm as lh

    x = day(length)
    model = lh.HMM(2, lh.Poisson(rate=column(x)))
    return Case(model, {"transition": SLOW2, "rate_coefficients": [[0.3, 0.4], [1.8, -0.2]]}, length, x)


def ar2(length: int) -> Case:
    import longhmm as lh

    recursions = {"intercept": [1.0, 2.0], "phi": [[1.2, -0.6], [0.3, 0.2]], "sd": [0.5, 1.0]}
    return Case(lh.HMM(2, lh.AR(lags=2)), {"transition": SLOW2, **recursions}, length)


def noise(length: int) -> Case:
    import longhmm as lh

    levels = {"mean": [0.0, 3.0], "sd": [1.0, 0.7], "phi": [0.5]}
    return Case(lh.HMM(2, lh.Gaussian(noise=lh.ARNoise(1))), {"transition": SLOW2, **levels}, length)


def drift(length: int) -> Case:
    """`lh.Gaussian(drift=lh.Drift(knots=8))`."""
    import longhmm as lh

    baseline = lh.Drift(knots=8, rows=length)
    wander = baseline.coefficients(np.cos(np.linspace(0.0, 6.0, 100)))
    model = lh.HMM(2, lh.Gaussian(drift=baseline.on_columns()))
    levels = {"mean": [0.0, 3.0], "sd": [1.0, 0.7], "drift": wander}
    return Case(model, {"transition": SLOW2, **levels}, length, np.arange(length, dtype=float)[:, None])


def rates(length: int) -> Case:
    import longhmm as lh

    model = lh.HMM(3, lh.Gaussian(), transitions=lh.Rates("1 <-> 2 <-> 3", dt=0.1))
    return Case(model, {"rates": [0.5, 0.4, 0.6, 1.0], "mean": [-2.0, 0.0, 2.0], "sd": [1.0, 0.8, 1.1]}, length)


def durations(length: int) -> Case:
    import longhmm as lh

    model = lh.HMM(2, lh.Gaussian(), transitions=lh.Durations("negative-binomial", phases=10))
    times = [20.0, 10.0, 3.0, 1.5, 1.0, 1.0]  # means, shapes, and where both states lead
    return Case(model, {"durations": times, "mean": [0.0, 2.0], "sd": [1.0, 0.8]}, length)


def kind(name: str, length: int | None = None) -> Case:
    """One of `KINDS`, of another length where one is given."""
    found: Case = globals()[name](length or LENGTH)
    return found
