"""What every backend is given and gives back.

Potentials come in as rows of numbers with natural parameters per state (or as log likelihoods), a transition matrix and
an initial distribution. Marginals of the cores of chunks come out, all that a gradient needs (F8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np

from longhmm.data.layout import Layout

if TYPE_CHECKING:
    from jaxtyping import Float, Integer

NO_STATE = 255
NO_KEY = np.zeros(2, np.uint32)
FAINTEST = -523 * math.log(2.0)  # see native/log_space.h
# How log likelihoods of a row follow from its numbers; see native/call.h.
GAUSSIAN, LINEAR, TABLE, PRECOMPUTED, PAIR, STUDENT, MIXTURE, FRAMES = range(8)
PAIRS = (PAIR, FRAMES)  # likelihoods depend on the state before a row, too


class Varying(NamedTuple):
    """Transition matrices that vary by row: `matrices` `(M, K, K)`, `index` `(n,)` into them; None: one for each."""

    matrices: Float[Any, "M K K"]
    index: Integer[Any, " n"] = None


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("rows", "natural", "transition", "initial", "mixed"),
    meta_fields=("kind", "width", "sums"),
)
@dataclass(frozen=True, eq=False)
class Potentials:
    """Potentials as a backend reads them.

    Attributes:
        rows: `(n, width)` numbers of every row, NaN where it is missing; log likelihoods `(n, K)` of PRECOMPUTED and
            `(n, K, K)` of PAIR (`[t, i, j]`: of row t given states i before it and j at it); or what `borrowed` gives.
        natural: `(K, p)` natural parameters of every state; None where there are none.
        transition: `(K, K)`, `Varying` or `Logits`.
        initial: `(K,)`, the distribution of the first state of a sequence; of PAIRS, of the state before it.
        kind, width, sums: GAUSSIAN and so on; numbers of a row; expected sufficient statistics of a state.
        mixed: what the C++ kernel hands predicted states to, and where the rows begin there; see native/mixed.h.
    """

    rows: Any
    natural: Float[Any, "K p"]
    transition: Any
    initial: Float[Any, " K"]
    kind: int
    width: int
    sums: int = 0
    mixed: Integer[Any, " 3"] = None


class Boundary(NamedTuple):
    """How chunks begin and end: logarithms of messages at their ends, or one distribution for all."""

    forward: Float[Any, "W K"] = None  # of the state before the first row; None: `start`, inside a sequence
    backward: Float[Any, "W K"] = None  # of what lies behind the last row, of chunks that fill their spans; or nothing
    start: Float[Any, " K"] = None  # the distribution before chunks inside a sequence; None: the stationary one


class Messages(NamedTuple):
    """Logarithms of the messages at both ends of every core, `(W, K)` each, up to a constant.

    Of chunks that warmed up, entries of forward messages below `FAINTEST` may be given as that, and so agree with those
    of their neighbours: then the backend has made sure that they make no difference to the chunk, or gives NaN.
    """

    forward_in: Float[Any, "W K"]  # of the state before the first core row, given the rows before it
    forward_out: Float[Any, "W K"]  # of the state at the last core row, given the rows up to it
    backward_in: Float[Any, "W K"]  # likelihood of the rows behind the core, by the state at its last row
    backward_out: Float[Any, "W K"]  # of the core and the rows behind it, by the state before its first row


class Wanted(NamedTuple):
    """What is asked of a backend beside sums: results of every chunk (a leading axis W, without weights), forward
    recursion only, probabilities of so many rows (0: none), and messages at the ends of cores. Where `transitions` are
    not asked for and matrices vary by row, no time need be spent on them."""

    per_chunk: bool = False
    forward_only: bool = False
    gamma: int = 0
    messages: bool = False
    transitions: bool = True


class ChunkStatistics(NamedTuple):
    """Marginals of the cores, summed with weights or with a leading axis W."""

    log_likelihood: Float[Any, "*each"]  # of core rows, given those of the chunk before them, without the base measure
    first: Float[Any, "*each K"]  # expected first states of sequences
    transitions: Float[Any, "*each K K"]  # expected transitions
    centred: Float[Any, "*each K K"]  # less `A_ij n_i.`, precise where large counts cancel; 0 where matrices vary
    sums: Float[Any, "*each K s"]  # expected sufficient statistics
    gamma: Float[Any, "asked K"] | Float[Any, "asked K K"]  # `P(x_t = k)` of core rows, else 0; for PAIRS, of pairs
    pairs: Float[Any, "*moved"]  # expected transitions by each of `Varying`, derivatives by coefficients of `Logits`
    messages: Messages | None
    impossible: Integer[Any, "*any"]  # a row that no reachable state can have produced, or -1


class PathsGiven(NamedTuple):
    """What is told of chunks through which paths are to be found."""

    forward: Float[Any, "W K"] = None  # as in `Boundary`
    following: Integer[Any, " W"] = None  # states of the rows behind cores, -1 where a sequence ends, to fill them in
    log_space: Any = False  # whether to draw in log space throughout, and not only where plain numbers do not do
    key: Any = NO_KEY  # `(2,)`; random numbers depend on nothing but this and the number of their row
    first_row: Any = 0  # the number of row 0
    start: Float[Any, " K"] = None  # as in `Boundary`; without either, chunks begin from the initial distribution


class PathsWanted(NamedTuple):
    """What is asked of paths: drawn ones or the most probable; messages, maps, and the states of so many rows."""

    drawn: bool
    messages: bool = False
    maps: bool = False
    states: int = 0


class ChunkPaths(NamedTuple):
    """Paths of states through the cores of chunks.

    A path is fixed from the end backwards, so that it takes two calls. The first finds what follows from every state
    behind a chunk; once these maps have been followed from the end of each sequence, the second fills the chunks in.

    Attributes:
        forward_in, forward_out: `(W, K)`, of drawn paths as in `Messages`; of best paths the scores of those into each
            state before the first core row and at the last one, up to a constant.
        log_likelihood: `(W,)`, of the core given the rows before it; of best paths, how much `forward_out` has gained
            over `forward_in`, each summed over its states.
        maps: `(W, K + 1)`, the first state of a core for each state of the row behind it; the last: nothing follows.
            `NO_STATE` where one is so unlikely that plain numbers underflow.
        states: `(n,)`, states of core rows, 0 elsewhere.
    """

    forward_in: Float[Any, "each K"]
    forward_out: Float[Any, "each K"]
    log_likelihood: Float[Any, " each"]
    maps: Integer[Any, "maps K+1"]
    states: Integer[Any, " asked"]


class Backend(Protocol):
    """Turns potentials into marginals and paths, inside compiled programs and outside."""

    name: str
    in_place: bool  # whether it reads rows where they lie, in chunks of any length; else all fill equal spans
    many_points: bool  # whether under `jax.vmap` one call serves many sets of parameters
    underflows: bool  # whether maps may hold `NO_STATE` where it is not told to use log space

    def supports(self, kind: int, n_states: int, time_varying: bool, precision: Any) -> bool:
        """Whether it can serve potentials of this kind here, with messages in this precision."""

    def statistics(
        self, potentials: Potentials, layout: Layout, boundary: Boundary, weights: Any, wanted: Wanted
    ) -> ChunkStatistics:
        """Marginals of the cores, in the precision of the transition matrix."""

    def paths(self, potentials: Potentials, layout: Layout, given: PathsGiven, wanted: PathsWanted) -> ChunkPaths:
        """Paths through the cores, under `jax.enable_x64(True)`. A chunk that does not end its sequence has the row
        behind it. What was not asked for is of no use."""
