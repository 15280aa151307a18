"""The model that the verdict names where residuals are correlated."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.model.noise import noise_to_try

WHITE = np.random.default_rng(0).normal(size=20_003)
MOVING = WHITE[3:] + 0.99 * WHITE[2:-1] - 0.18 * WHITE[1:-2] - 0.34 * WHITE[:-3]


def fading() -> np.ndarray:
    found = WHITE.copy()
    for t in range(1, len(found)):
        found[t] += 0.8 * found[t - 1]
    return found


@pytest.mark.parametrize(
    ("emission", "values", "said"),
    [
        (lh.Gaussian(), MOVING, "try lh.Gaussian(noise=lh.MANoise(3)), on the command line --noise ma:3"),
        (lh.Gaussian(), fading(), "try lh.Gaussian(noise=lh.ARNoise(2)), on the command line --noise ar:2"),
        (lh.Gaussian(dim=2), fading(), "try lh.AR(dim=2, lags=1), on the command line --emission ar --lags 1"),
        (lh.AR(lags=2), fading(), "try lh.AR(lags=3), on the command line --emission ar --lags 3"),
        (lh.Gaussian(noise=lh.ARNoise(1)), fading(), "try lh.Gaussian(noise=lh.ARNoise(3)), on the command line"),
        (lh.Poisson(), fading(), "take every second observation, or fewer"),
    ],
    ids=["moving", "fading", "several", "more-lags", "more-noise", "counts"],
)
def test_it_suits_the_correlations(emission: lh.Emission, values: np.ndarray, said: str) -> None:
    values[100:110] = np.nan
    assert noise_to_try(emission, values).startswith(said)
