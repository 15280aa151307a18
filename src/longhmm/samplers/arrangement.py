"""Where the model tells states apart, whether those of an optimum stand where their transitions suit it best.

Starts order groups of rows by the transitions between them. A state that is rarely visited is no group of its own: it
is found later, in the place of whatever made room, and no climb leads from there to another place, since on the way
every state would have to change.
"""

import numpy as np

from longhmm.backends.stream import totals
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.initialise import assign, order_score, permuted
from longhmm.model.parameters import Params
from longhmm.target.coordinates import Arrays

DETOUR = 0.01  # chance of a step that the model may forbid
ORDERS = 20  # from which swaps of two states lead to the best


def rearranged(model: HMM, params: Params, part: Sequences) -> Arrays | None:
    """A start with the states in another order, by expected transitions of which none is forbidden for once; None where
    no order is better than theirs, or where an order means nothing."""
    moves, n = model.transitions, model.n_states
    told = model.emission.states_differ(n) or model.emission.couples or part.has_states
    if moves.apart or moves.direct.all() or told:
        return None
    free = HMM(n, model.emission, initial=model.initial)
    own = {name: params[name] for name in model.emission.parameters(n)}
    allowed = free.validate({**own, "transition": (1 - DETOUR) * params["transition"] + DETOUR / n})
    counts = totals(free, allowed, part).transitions
    rng, states, nothing = np.random.default_rng(0), np.arange(n), np.zeros((n, n))
    orders = [assign(model, states, counts, nothing, each, rng) for each in range(ORDERS)]
    order = max(orders, key=lambda each: order_score(model, states, counts, nothing, each))
    if np.array_equal(order, states):
        return None
    try:
        placed = permuted(model, own, order, {}, 0)
    except ModelError:  # it would part states that share a level
        return None
    return model.validate({**placed, moves.parameter: moves.start(counts[np.ix_(order, order)])})
