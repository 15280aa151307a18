"""Filters of instruments, and the noise that the verdict names where residuals are correlated."""

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


def test_filters_by_name_settle_where_they_should() -> None:
    gaussian = lh.StepResponse("gaussian", cutoff=0.1).values
    assert gaussian[-1] == 1.0 and np.all(np.diff(gaussian) > 0)
    np.testing.assert_allclose(gaussian[:-1], 1 - gaussian[:-1][::-1], atol=1e-12)  # symmetric about its middle
    weights = np.diff(gaussian, prepend=0.0)
    gain = np.abs(np.sum(weights * np.exp(-2j * np.pi * 0.1 * np.arange(len(weights)))))
    assert gain == pytest.approx(np.sqrt(0.5), abs=0.03)
    bessel = np.diff(lh.StepResponse("bessel", cutoff=0.1).values, prepend=0.0)
    gain = np.abs(np.sum(bessel * np.exp(-2j * np.pi * 0.1 * np.arange(len(bessel)))))
    assert gain == pytest.approx(np.sqrt(0.5), abs=0.03)
