"""What every backend is given and gives back.

Potentials come in as rows of numbers with natural parameters per state (or as log likelihoods), a transition matrix and
an initial distribution. Marginals of the cores of chunks come out. By Fisher's identity (F8) they are all that a
gradient needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from longhmm.data.layout import Layout

if TYPE_CHECKING:
    from jaxtyping import Float, Integer

# How log likelihoods of a row follow from its numbers; see native/call.h.
GAUSSIAN, LINEAR, TABLE, PRECOMPUTED, PAIR = range(5)


def kind_of(emission: Any, lowering: Any) -> int:
    """How a backend is given rows of an emission, by its lowering or, where that is None, without one."""
    if lowering is not None:
        return int(lowering.kind)
    return PAIR if emission.couples else PRECOMPUTED


@partial(jax.tree_util.register_dataclass, data_fields=("rows", "natural"), meta_fields=("kind", "width", "sums"))
@dataclass(frozen=True, eq=False)
class Lowered:
    """Potentials of emissions as a backend reads them.

    Attributes:
        rows: `(n, width)` numbers of every row, NaN where it is missing; log likelihoods `(n, K)` of PRECOMPUTED and
            `(n, K, K)` of PAIR (`[t, i, j]`: of row t given states i before it and j at it); or what `borrowed` gives.
        natural: `(K, p)` natural parameters of every state; None where there are none.
        kind: GAUSSIAN, LINEAR, TABLE, PRECOMPUTED or PAIR.
        width: numbers of a row.
        sums: expected sufficient statistics of a state.
    """

    rows: Any
    natural: Float[Any, "K p"]
    kind: int
    width: int
    sums: int


class Varying(NamedTuple):
    """Transition matrices that vary by row: `matrices` `(M, K, K)`, `index` `(n,)` into them."""

    matrices: Float[Any, "M K K"]
    index: Integer[Any, " n"]


class Boundary(NamedTuple):
    """Logarithms of messages at the ends of every chunk, `(W, K)` each: `forward`, the distribution of the state before
    its first row; `backward`, what lies behind its last, of chunks that fill their spans, unless it is uniform.

    None: the chunk starts from `start`; nothing lies behind.
    """

    forward: Float[Any, "W K"] = None
    backward: Float[Any, "W K"] = None


FAINTEST = -523 * math.log(2.0)  # see native/log_space.h


class Messages(NamedTuple):
    """Logarithms of the messages at both ends of every core, `(W, K)` each, up to a constant.

    Of chunks that warmed up, entries of forward messages below `FAINTEST` may be given as that, and so agree with those
    of their neighbours: then the backend has made sure that they make no difference to the chunk, or gives NaN.

    Attributes:
        forward_in: of the state before the first core row, given the rows before it.
        forward_out: of the state at the last core row, given the rows up to it.
        backward_in: likelihood of the rows behind the core, by the state at its last row.
        backward_out: likelihood of the core and the rows behind it, by the state before its first row.
    """

    forward_in: Float[Any, "W K"]
    forward_out: Float[Any, "W K"]
    backward_in: Float[Any, "W K"]
    backward_out: Float[Any, "W K"]


class Wanted(NamedTuple):
    """What is asked of a backend beside sums: results of every chunk (a leading axis W, without weights), forward
    recursion only, probabilities of so many rows (0: none), and messages at the ends of cores."""

    per_chunk: bool = False
    forward_only: bool = False
    gamma: int = 0
    messages: bool = False


class ChunkStatistics(NamedTuple):
    """Marginals of the cores, summed with weights or with a leading axis W.

    Attributes:
        log_likelihood: sum over core rows of `log p(y_t | rows of the chunk before it)`, without the base measure.
        first: `(K,)`, expected first states of sequences.
        transitions: `(K, K)`, expected transitions.
        centred: the same less `A_ij n_i.`, precise also where large counts cancel; zeros where matrices vary.
        sums: `(K, sums)`, expected sufficient statistics.
        gamma: `(n, K)`, probabilities of the states of core rows, 0 elsewhere; `(n, K, K)` of pairs for PAIR.
        pairs: `(n, K, K)`, probabilities of transitions into core rows, where matrices vary; else None.
        messages: at the ends of cores, or None.
        impossible: a row that no reachable state can have produced, or -1.
    """

    log_likelihood: Float[Any, "*each"]
    first: Float[Any, "*each K"]
    transitions: Float[Any, "*each K K"]
    centred: Float[Any, "*each K K"]
    sums: Float[Any, "*each K s"]
    gamma: Float[Any, "asked K"] | Float[Any, "asked K K"]
    pairs: Float[Any, "asked K K"]
    messages: Messages | None
    impossible: Integer[Any, "*any"]


class Uniforms(NamedTuple):
    """Random numbers that depend on nothing but a `key` `(2,)` and the number of a row, `first_row` that of row 0."""

    key: Any
    first_row: Any


class PathsWanted(NamedTuple):
    """What is asked of paths: drawn from their posterior or the most probable ones; messages, maps, and the states of
    so many rows (0: none)."""

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
            `NO_STATE` where plain numbers underflow.
        states: `(n,)`, states of core rows, 0 elsewhere.
        redone: how often plain numbers underflowed here. They may then have done so in the given messages too.
    """

    forward_in: Float[Any, "each K"]
    forward_out: Float[Any, "each K"]
    log_likelihood: Float[Any, " each"]
    maps: Integer[Any, "maps K+1"]
    states: Integer[Any, " asked"]
    redone: Integer[Any, ""]


NO_STATE = 255


class Backend(Protocol):
    """Turns potentials into marginals and paths, inside compiled programs and outside."""

    name: str
    many_points: bool  # whether under `jax.vmap` one call serves many sets of parameters
    underflows: bool  # whether it draws paths on plain numbers where it is not told to use log space

    def supports(self, kind: int, n_states: int, time_varying: bool, precision: Any) -> bool:
        """Whether it can serve potentials of this kind here, with messages in this precision."""

    def statistics(
        self,
        lowered: Lowered,
        transition: Any,
        initial: Any,
        layout: Layout,
        boundary: Boundary,
        weights: Any,
        *,
        start: Any,
        wanted: Wanted,
    ) -> ChunkStatistics:
        """Marginals of the cores. `start` `(K,)`: the distribution before chunks that begin inside a sequence, None for
        the stationary one of `transition`."""

    def paths(
        self,
        lowered: Lowered,
        transition: Any,
        initial: Any,
        layout: Layout,
        forward: Any,
        following: Any,
        uniforms: Uniforms,
        *,
        start: Any,
        log_space: Any,
        wanted: PathsWanted,
    ) -> ChunkPaths:
        """Paths through the cores, in double precision. A chunk that does not end its sequence has the row behind it.

        `forward` as in `Boundary`, else chunks inside a sequence begin from `start`; `following` `(W,)`, the states of
        the rows behind cores, -1 where a sequence ends, for `wanted.states`.
        """


def weighted_sum(weights: Any, parts: jax.Array) -> jax.Array:
    """`sum_w weights[w] parts[w]` in float64, whatever comes in and wherever it runs."""
    with jax.enable_x64(True):
        # No matrix product: under `jax.vmap` its type would be chosen anew, outside of this scope.
        by = jnp.asarray(weights).astype(jnp.float64).reshape(-1, *[1] * (parts.ndim - 1))
        return jnp.sum(by * parts.astype(jnp.float64), axis=0)
