"""When an exact full-data sampler takes over from the default one, and which."""

from __future__ import annotations

import numpy as np

from longhmm.samplers.contract import Sampler

CHEAPER = "for data of this length it costs less per draw than windows"
# Full gradients that an exact sampler spends on each effective draw of a chain, and on its adaptation, about.
GRADIENTS, ADAPTATION = 4, 1000
OVERHEAD = 2000  # what a gradient costs beside its rows, in observations
A_MOMENT = 5e7  # rows
WARM_UP = 20  # independent draws that chains on windows warm up for
WARM_UP_STEPS = 50  # of an exact sampler that begins in the posterior already


def cheaper(length: int, cost: float, draws: int) -> bool:
    """Whether the exact sampler costs less for `draws` draws of a chain, each of which costs windows `cost` rows.

    Its adaptation counts where it is not done in a moment: it may cost more than all draws from windows together.
    """
    gradient = OVERHEAD + length
    adaptation = ADAPTATION * gradient
    whole = adaptation + GRADIENTS * gradient * draws < (WARM_UP + draws) * cost
    return GRADIENTS * gradient < cost and (whole or adaptation < A_MOMENT)


def exact_sampler(tuned: Sampler, why: str) -> Sampler:
    """The full-data sampler; it learns the shape of the posterior by itself if the mode misled."""
    from longhmm.samplers.full_data_hmc import NUTS

    mode = tuned.mode()
    return NUTS(inverse_mass=np.linalg.inv(mode[1]) if mode is not None and why == CHEAPER else None)
