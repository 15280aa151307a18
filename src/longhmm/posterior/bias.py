"""Whether the draws contradict exact gradients, or a run with half the step: which parameter, and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.posterior.entries import derivatives_along, entries, layout
from longhmm.posterior.stein import Compared, Gradient, exact_gradients, stein

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

FALSE_ALARMS = 0.002  # share of right results that one kind of check may call wrong, over all parameters at once
MOST_SHIFT, MOST_WIDTH = 0.1, 0.1  # posterior sd, and relative error of the sd: beyond, biased


def bias(
    posterior: Posterior,
    sequences: Sequences,
    count: int,
    details: dict[str, Any],
    gradient: Gradient | None = None,
    progress: Progress | None = None,
) -> str | None:
    """What exact gradients at `count` draws say against the draws, if anything; the numbers go into `details`."""
    table = entries(posterior)
    if not table.names:
        return None
    coordinates = {str(name): np.asarray(value) for name, value in posterior.unconstrained.items()}
    points, gradients = exact_gradients(
        posterior.model, coordinates, sequences, max(count, 3), gradient=gradient, progress=progress
    )
    directions = table.directions
    derivatives = derivatives_along(posterior.model, layout(coordinates), points, table.columns, directions)
    found = stein(table.values, directions, gradients, derivatives)
    far, wide = worst(found, table.names, details, "")
    if far is not None:
        return f"the mean of {table.names[far]}, and its interval, are off by {found.shift[far]:+.2f} posterior sd"
    if wide is not None:
        return f"the interval of {table.names[wide]} is {found.sd_ratio[wide]:.2f} times as wide as it should be"
    return None


def bias_of_steps(posterior: Posterior, sequences: Sequences, details: dict[str, Any]) -> str | None:
    """What a short run with half the step says against the draws, if anything; numbers to `details`."""
    from longhmm.posterior.half_step import compare_halved

    found = compare_halved(posterior, sequences)
    if found is None:
        details["half_step"] = "this sampler has no step to halve"
        return None
    names = entries(posterior).names
    far, wide = worst(found, names, details, "half_step_")
    if far is not None:
        return f"half the step moves the mean of {names[far]} by {-found.shift[far]:+.2f} posterior sd"
    if wide is not None:
        return f"the interval of {names[wide]} is {found.sd_ratio[wide]:.2f} times as wide as with half the step"
    return None


def worst(found: Compared, names: list[str], details: dict[str, Any], prefix: str) -> tuple[int | None, int | None]:
    """The entries whose mean and whose sd are off by most beyond chance; None where that is too little to matter.

    They go into `details`, too.
    """
    limit = errors_allowed(len(names), found.freedom)
    shift_excess = np.abs(found.shift) - limit * found.shift_error
    width_excess = np.abs(found.sd_ratio - 1.0) - limit * found.sd_ratio_error
    far, wide = int(np.argmax(shift_excess)), int(np.argmax(width_excess))
    numbers = {
        "shift": float(found.shift[far]),
        "shift_error": float(found.shift_error[far]),
        "shift_of": names[far],
        "sd_ratio": float(found.sd_ratio[wide]),
        "sd_ratio_error": float(found.sd_ratio_error[wide]),
        "sd_ratio_of": names[wide],
    }
    details.update({prefix + name: value for name, value in numbers.items()})
    return far if shift_excess[far] > MOST_SHIFT else None, wide if width_excess[wide] > MOST_WIDTH else None


def errors_allowed(count: int, freedom: float = np.inf) -> float:
    """Standard errors by which the worst of `count` numbers may be off by chance, in either direction.

    Student's t with `freedom` degrees of freedom, where the errors themselves come from few numbers.
    """
    from scipy.stats import t

    return float(t.isf(FALSE_ALARMS / 2 / max(count, 1), freedom))
