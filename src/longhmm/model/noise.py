"""What an instrument adds to the levels that it shows: noise that is correlated, and a filter that rounds steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from longhmm.errors import ModelError, check_whole

LAGS = 6  # over which a moving average may reach; what reaches further fades, as in an autoregression
LEAST = 0.1  # correlation that counts


class Noise:
    """Noise about the level of a state, for `Gaussian(noise=...)`.

    Args:
        order: how many terms the autoregression, or the moving average, has.
        latest: whether states remember no more than the latest change; None: where remembering all takes too many.
        common: whether all states have one standard deviation of the innovations.
        weights: prior or fixed value of `phi`, or `theta`.
    """

    kind, weights = "ar", "phi"

    def __init__(
        self, order: int = 1, *, latest: bool | None = None, common: bool = False, weights: Any = None
    ) -> None:
        check_whole("order", order, 1, ModelError)
        self.options: dict[str, Any] = {"order": int(order), "latest": latest, "common": common, self.weights: weights}

    @staticmethod
    def from_text(text: str) -> Noise:
        """Such as "ar:2" or "ma:3,lags=12,common", as the command line has it."""
        kinds: dict[str, type[Noise]] = {"ar": ARNoise, "ma": MANoise}
        first, *options = text.split(",")
        kind, _, order = first.partition(":")
        given: dict[str, Any] = {}
        for name, _, number in (each.partition("=") for each in options):
            given[name] = int(number) if number.isdigit() else True
        known = {"common", "latest", *(("lags",) if kind == "ma" else ())}
        if kind not in kinds or not order.isdigit() or not set(given) <= known:
            raise ModelError(f"noise must be such as ar:2, ma:3 or ma:3,lags=12,common, got {text!r}.")
        return kinds[kind](int(order), **given)


class ARNoise(Noise):
    """`e_t = sum_l phi_l e_{t-l} + sd_k u_t`, white u: the past of the noise fades."""


class MANoise(Noise):
    """`e_t = sd_k (u_t + sum_l theta_l u_{t-l})`, white u: correlated over `order` samples and not beyond. It is taken
    as an autoregression with `lags` terms (twice the order, and 6 at least, unless given)."""

    kind, weights = "ma", "theta"

    def __init__(
        self,
        order: int = 1,
        *,
        lags: int | None = None,
        latest: bool | None = None,
        common: bool = False,
        weights: Any = None,
    ) -> None:
        super().__init__(order, latest=latest, common=common, weights=weights)
        if lags is not None:
            check_whole("lags", lags, order, ModelError)
        self.options["lags"] = int(lags) if lags is not None else max(6, 2 * int(order))


class StepResponse:
    """What an instrument shows after a step from 0 to 1, sample by sample, for `Gaussian(response=...)`.

    Args:
        response: numbers that end in 1; or the name of a filter, "gaussian" or "bessel" (of four poles); or after how
            many samples a step is over: what they show, `rise`, is then estimated with everything else.
        cutoff: of a filter with a name, the frequency (-3 dB) as a share of the sampling rate.
        rise: prior of what is estimated; by default normal around a straight line, with standard deviation 0.25.

    >>> StepResponse("gaussian", cutoff=0.2).values.round(2).tolist()
    [0.07, 0.5, 0.93, 1.0]
    """

    def __init__(self, response: str | int | Sequence[float], *, cutoff: float | None = None, rise: Any = None) -> None:
        if isinstance(response, str) and cutoff is None:  # as the command line has it
            name, _, rest = response.partition(":")
            if name in FILTERS:
                response, cutoff = name, _number(rest)
            else:
                response = int(name) if name.isdigit() else [_number(each) for each in name.split(",")]
        self.samples, self.rise = 0, rise
        if isinstance(response, int | np.integer):
            check_whole("response", response, 1, ModelError)
            self.samples, self.values = int(response), np.ones(1)
            return
        if rise is not None:
            raise ModelError(f"rise must be left out where the response is not estimated, got {response!r}.")
        if isinstance(response, str):
            if response not in FILTERS or cutoff is None or not 0 < cutoff < 0.5:
                raise ModelError(
                    f"response must be one of {', '.join(FILTERS)} with a cutoff between 0 and 0.5 of the sampling "
                    f"rate, or numbers, got {response!r} and {cutoff!r}."
                )
            self.values = FILTERS[response](cutoff)
            return
        self.values = np.asarray(response, np.float64)
        if self.values.ndim != 1 or not len(self.values) or not abs(self.values[-1] - 1.0) < 0.02:
            raise ModelError(
                f"response must be numbers that end in 1, or how many samples a step takes, got {response!r}."
            )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _gaussian(cutoff: float) -> np.ndarray:
    from scipy.special import ndtr

    sd = np.sqrt(np.log(2.0)) / (2 * np.pi * cutoff)
    reach = int(np.ceil(2.0 * sd))
    return _settled(ndtr(np.arange(-reach, reach + 1) / sd))


def _bessel(cutoff: float) -> np.ndarray:
    from scipy import signal

    filtered = signal.lfilter(*signal.bessel(4, cutoff, fs=1.0, norm="mag"), np.ones(64))
    return _settled(filtered)


def _settled(values: np.ndarray) -> np.ndarray:
    """Up to where a response has settled to within a hundredth, and 1 there; from where it has begun."""
    begun, last = np.argmax(np.abs(values) > 0.01), np.flatnonzero(np.abs(values - 1) > 0.01).max()
    return np.append(values[begun : last + 1], 1.0)


FILTERS = {"gaussian": _gaussian, "bessel": _bessel}


def coloured_options(dim: int, *, noise: Any = None, response: Any = None, **priors: Any) -> dict[str, Any]:
    """What `Coloured` needs to know of the arguments of `Gaussian`; both may be text."""
    noise = Noise.from_text(noise) if isinstance(noise, str) else noise
    response = StepResponse(response) if isinstance(response, str) else response
    if not isinstance(noise, Noise | None) or not isinstance(response, StepResponse | None):
        said = f"got {noise!r} and {response!r}"
        raise ModelError(f"noise must be ARNoise(...) or MANoise(...) and response StepResponse(...), {said}.")
    if dim != 1 or not set(priors) <= {"mean", "sd"}:
        raise ModelError(f"A Gaussian with noise or response has one feature, with mean and sd, got dim={dim}.")
    options = {"kind": noise.kind, **noise.options} if noise is not None else {}
    if response is not None:
        options |= {"response": response.values.tolist(), "samples": response.samples, "rise": response.rise}
    return {**priors, **options}


def noise_to_try(emission: Any, values: np.ndarray) -> str:
    """A model whose noise has the correlations of residuals `(n,)`, NaN where missing, as the emission has it."""
    centred = values - np.nanmean(values)
    found = [np.nanmean(centred[lag:] * centred[:-lag]) / np.nanvar(values) for lag in range(1, LAGS + 1)]
    far = int(np.flatnonzero(np.abs(found) > LEAST).max(initial=0)) + 1
    said: str = emission.more_noise(far)
    return said


def with_noise(kind: str, order: int) -> str:
    name = {"ar": "ARNoise", "ma": "MANoise"}[kind]
    return f"try lh.Gaussian(noise=lh.{name}({order})), on the command line --noise {kind}:{order}"


def with_lags(dim: int, lags: int) -> str:
    features = f"dim={dim}, " if dim > 1 else ""
    return f"try lh.AR({features}lags={lags}), on the command line --emission ar --lags {lags}"
