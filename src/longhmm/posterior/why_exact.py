"""Whether draws from windows should be made again by an exact sampler.

Control variates and a step size by formula lean on a posterior that is not too far from Gaussian. Short data and states
that are hardly ever visited can be far from it. Exact gradients at some of the draws show that (see `stein`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from longhmm.posterior.diagnostics.bias import bias
from longhmm.run.driver import CTRL_C
from longhmm.run.limit import Limit
from longhmm.run.remarks import stopped_note
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

GRADIENTS = 16  # exact gradients that are compared with the draws
# Exact gradients that the exact sampler spends on a step, about, and steps of its adaptation and warm-up.
PER_STEP, ADAPTATION = 8, 350
MOST_ROWS = 2.7e9  # rows of exact gradients that a run is repeated for: minutes, not hours


def why_exact(posterior: Posterior, limit: Limit) -> str:
    """The reason in words; empty where the draws are fine, or the exact sampler would take too long."""
    origin = posterior.origin
    if origin is None or not origin.request.automatic or posterior.settings.get("sampler") != ControlVariateSGLD.name:
        return ""
    request = origin.request
    rows = PER_STEP * request.chains * (ADAPTATION + request.draws) * request.sequences.length
    # Who limits the time keeps the draws there are; the verdict will say what is wrong with them.
    if request.time_limit is not None or rows > MOST_ROWS or any("stopped early" in note for note in posterior.notes):
        return ""
    watched = limit.watch(request.sequences)
    try:
        found = limit.run(lambda: bias(posterior, watched, GRADIENTS, {}), "checking the draws")
    except KeyboardInterrupt:
        posterior.notes = (*posterior.notes, stopped_note(CTRL_C, posterior.n_draws, request.draws))
        return ""
    return "" if found is None else f"exact gradients contradicted the draws from windows, {found}"
