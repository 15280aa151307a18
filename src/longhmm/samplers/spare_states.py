"""States that the data do not support: their emissions overlap, and a model with fewer states describes the data as
well. Chains then wander between arrangements of the spare states that are all as good, and agree on none of them."""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np

from longhmm.backends.stream import totals
from longhmm.data.sequences import Sequences
from longhmm.errors import LongHMMError
from longhmm.model.hmm import HMM
from longhmm.model.initialise import exchangeable
from longhmm.model.transitions.dirichlet import Sticky
from longhmm.samplers.mode import find_mode
from longhmm.target.coordinates import Arrays, Flat, constrain

TOO_MANY: Literal["too many states"] = "too many states"  # how the note begins, and the verdict
# Root mean square difference of the emission's coordinates of two states, in posterior sd, below which fewer states are
# tried. States that the data tell apart at all differ by more; where they do not, trying costs one search for a mode.
ALIKE = 10.0
IN_VAIN = 1e9  # rows that an exact sampler reads at most, about, whose chains will not agree: half a minute


class Spare(NamedTuple):
    """How many states are enough, and what they lose."""

    n_states: int
    lost: float  # log likelihood, relative to the larger model
    fewer: int  # parameters


def notes_on(
    model: HMM, mode: tuple[Arrays, np.ndarray] | None, sequences: Sequences, seed: int = 0
) -> tuple[str, ...]:
    """What to tell of spare states at the mode and its information; nothing where all are supported by the data."""
    pair = None if mode is None else overlapping(model, *mode)
    found = None if pair is None else enough_states(model, mode[0], sequences, seed)  # type: ignore[index]
    if found is None or pair is None:
        return ()
    enough = f"{found.n_states} state{'s describe' if found.n_states > 1 else ' describes'} the data as well"
    ranked = f"longhmm compare FILE --states 1..{model.n_states}"
    return (
        f"{TOO_MANY}: states {pair[0]} and {pair[1]} cannot be told apart, and {enough} (log likelihood lower by "
        f"{max(found.lost, 0.0):.1f}, with {found.fewer} parameters fewer): fit lh.HMM({found.n_states}, ...), or rank "
        f"numbers of states by data that were not seen: {ranked}",
    )


def noted(notes: Iterable[str]) -> str | None:
    """What such a note says, if one of these is."""
    return next((each.removeprefix(f"{TOO_MANY}: ") for each in notes if each.startswith(TOO_MANY)), None)


def put_down(notes: Iterable[str], found: tuple[Any, str] | None, details: Mapping[str, Any]) -> tuple[Any, str]:
    """What is wrong with draws, `(kind, reason)`, put down to states to spare where notes tell of them. Draws that
    agree and are right can be trusted all the same: a weakly supported state is no fault."""
    assert found is not None
    said = noted(notes)
    if said is None or found[0] not in ("run longer", "another mode is as good", "biased"):
        return found
    symptom = f"Draws show it: {found[1]}"
    if found[0] == "run longer" and "r_hat" in details:  # which would not help
        largest, smallest = "{r_hat:.2f} ({r_hat_of})".format(**details), "{ess:.0f} ({ess_of})".format(**details)
        symptom = f"The chains do not agree: R-hat is up to {largest}, ESS down to {smallest}."
    return TOO_MANY, f"{said}. {symptom}"


def tree_depth(rows: float, most: int) -> int:
    """Doublings of a trajectory that the exact sampler may make, where as many rows are read without any."""
    return int(np.clip(np.log2(IN_VAIN / rows), 3, most))


def overlapping(model: HMM, mode: Arrays, information: np.ndarray) -> tuple[int, int] | None:
    """The two states whose emissions differ least, if by little (Wald); None also where states are not alike a priori,
    or have more than an emission of their own."""
    plain = model.transitions.dirichlet and not (model.labels or model.emission.couples or model.memory is not None)
    if model.n_states < 2 or not plain or not exchangeable(model):
        return None
    flat = Flat.like(mode)
    own = [each for name, each in flat.unravel(np.arange(flat.size)).items() if name != "transition"]
    if not own or any(each.ndim == 0 or len(each) != model.n_states for each in own):
        return None
    of_state = np.concatenate([each.reshape(model.n_states, -1) for each in own], axis=1).astype(int)
    vector, covariance = flat.ravel_numpy(mode), np.linalg.inv(information)

    def apart(pair: tuple[int, int]) -> float:
        one, other = of_state[list(pair)]
        gap = vector[one] - vector[other]
        blocks = [covariance[np.ix_(a, b)] for a, b in ((one, one), (other, other), (one, other), (other, one))]
        return float(np.sqrt(gap @ np.linalg.solve(blocks[0] + blocks[1] - blocks[2] - blocks[3], gap) / len(gap)))

    distances = {pair: apart(pair) for pair in combinations(range(model.n_states), 2)}
    nearest = min(distances, key=distances.__getitem__)
    return nearest if distances[nearest] < ALIKE else None


def enough_states(model: HMM, mode: Arrays, sequences: Sequences, seed: int = 0) -> Spare | None:
    """The number of states with the best BIC, counted down from the model's as long as it improves."""
    if sequences.has_states:
        return None
    best, found = _fit(model, mode, sequences), None
    size, price = Flat.like(mode).size, 0.5 * np.log(sequences.length)
    for n_states in range(model.n_states - 1, 0, -1):
        try:
            smaller = with_states(model, n_states)
            other = find_mode(smaller, sequences, seed=seed).coordinates
            lost = best - _fit(smaller, other, sequences)
        except LongHMMError:  # priors of single states, which fewer cannot have
            break
        fewer = size - Flat.like(other).size
        before = 0.0 if found is None else found.lost - price * found.fewer
        if lost - price * fewer >= before:
            break
        found = Spare(n_states, lost, fewer)
    return found


def with_states(model: HMM, n_states: int) -> HMM:
    """The same model with another number of states; all of them are alike a priori."""
    prior: Any = model.transitions.concentration
    sticky = Sticky(prior[0, 0], prior[0, 1] if len(prior) > 1 else prior[0, 0])
    initial = model.initial if isinstance(model.initial, str) else "uniform"
    return HMM(n_states, model.emission, transition_prior=sticky, initial=initial)


def _fit(model: HMM, mode: Arrays, sequences: Sequences) -> float:
    return float(totals(model, model.validate(constrain(model, mode)), sequences).log_likelihood)
