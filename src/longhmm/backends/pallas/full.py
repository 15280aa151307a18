"""Full passes on a GPU: all data as long windows side by side, recursions in float32, sums in float64.

Data are laid out once, the numbers of neighbouring windows next to each other, so that the lanes of a program read
consecutive memory. Several GPUs of one host each hold a run of neighbouring windows. What comes into a chunk from its
neighbours is found by starting `overlap` rows before it and ending as many behind it, and compared afterwards, as on
the CPU (see `stitch`), to what single precision can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from longhmm.backends.pallas import windows
from longhmm.backends.pallas.kernel import run_windows
from longhmm.backends.pallas.plan import COMPARED, Config, Lanes, Plan
from longhmm.backends.pallas.rows import flat_parameters, scales
from longhmm.backends.protocol import GAUSSIAN, Messages
from longhmm.backends.read import Reader
from longhmm.backends.stitch import forward_gap, posterior_gap
from longhmm.data.layout import Partition
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM

LONGEST_CHUNK, LEAST_CHUNK = 592, 64  # rows of a window
AT_ONCE = 132 * 8 * 32  # windows that a large GPU runs at the same time: processors, warps of each, and lanes
OVERLAPS = (32, 128, 512)
BLOCK_ENTRIES = 1 << 29  # forward messages of a block, rows times states: two gigabytes
_laid: WeakKeyDictionary[Sequences, dict[Any, Laid]] = WeakKeyDictionary()
TOLERANCE = 1e-5  # log odds, or total variation, below which two messages in single precision count as the same


class Fused(NamedTuple):
    """What a pass makes of its sums in the same program, and what is checked and found while the device works."""

    then: Callable[..., Any] = lambda model, params, given, sums: sums  # log likelihood, first, transitions, and sums
    given: Any = None
    check: Callable[[], object] = lambda: None  # refuses parameters
    beside: Callable[[], Any] = lambda: None  # goes with what is made


ALONE = Fused()


class Block(NamedTuple):
    """Windows that run side by side: rows `(time and number, window)`, their places, and which of them follow on their
    left neighbour within one sequence. All are spread over windows."""

    rows: jax.Array
    lanes: Lanes
    joined: jax.Array


class Laid:
    """Data on the device, ready for passes with one overlap. It does not keep the data it was made from alive."""

    def __init__(self, reader: Reader, overlap: int, *, chunk: int | None = None, config: Config | None = None) -> None:
        sequences, lowering, n = reader.sequences, reader.lowering, reader.model.n_states
        assert lowering is not None
        self.longest = int(np.diff(sequences.offsets).max())
        self.overlap, self.log_base_measure = overlap, reader.log_base_measure()
        config = config or windows.config_for(n)
        together = config.lanes * windows.mesh().size  # windows come in so many at a time
        partition = Partition(sequences.offsets, chunk or _chunk_length(sequences.length))
        spans = (overlap, partition.core_length, overlap)
        # Blocks of one size share a compiled program.
        most = max(1, BLOCK_ENTRIES // n // sum(spans) // config.lanes)
        programs = -(-partition.n_blocks // together)
        size = -(-programs // -(-programs // most)) * together
        share = size // windows.mesh().size
        form = (lowering.kind, lowering.width, lowering.pack, lowering.sums)
        self.plan = Plan(*form, n, *spans, lowering.width * share, share, 0, config, joined=True)
        self.blocks = [
            _lay(reader, partition, np.arange(begin, min(begin + size, partition.n_blocks)), size, self.plan)
            for begin in range(0, partition.n_blocks, size)
        ]
        self.before_all = jnp.zeros((2, n), jnp.float32)

    def totals(self, model: HMM, params: Mapping[str, np.ndarray], fused: Fused = ALONE) -> Any:
        """Log likelihood, first states, transitions and sums of all data, or what `fused` makes of them, and what it
        finds beside them; None where messages at boundaries do not agree or underflow lost something."""
        numbers, forms = zip(_of_model(model), _packed((dict(params), fused.given, self.log_base_measure)), strict=True)
        with jax.enable_x64(True):
            # One copy there, 0.15 ms, and none back: of one, 0.25. A pass over 20 million rows takes 1.2.
            state: Any = (np.concatenate(numbers), self.before_all, None)
            for block in self.blocks[:-1]:
                state = _sums(forms, self.plan, None, block, *state)
            found = _sums(forms, self.plan, fused.then, self.blocks[-1], *state)
            fused.check()  # the device is at work: until its answer is asked for, nothing costs time
            beside = fused.beside()
            form = _made(forms, self.plan, fused.then)
            gap, lost, made = form.unpacked(vector := np.empty(form.size))  # views, which are filled at once
            vector[:] = np.asarray(found)
        return None if lost or not gap <= TOLERANCE else (made, beside)


@dataclass(frozen=True, eq=False)
class Form:
    """How arrays lie in one: their tree, and shape and type of each. Equal ones are the same object (see `form_of`):
    finding a program by what a tree holds takes longer than anything else that Python does for a pass."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]

    @cached_property
    def size(self) -> int:
        return sum(math.prod(shape) for shape, _ in self.leaves)

    def unpacked(self, packed: Any) -> Any:
        parts, at = [], 0
        for shape, dtype in self.leaves:
            parts.append(packed[at : (at := at + math.prod(shape))].reshape(shape).astype(dtype, copy=False))
        return jax.tree.unflatten(self.structure, parts)


form_of = cache(Form)


def _packed(tree: Any) -> Any:
    """All numbers of a tree in one array, and how they lie there."""
    leaves, structure = jax.tree.flatten(tree)
    numbers = [np.asarray(each) for each in leaves]
    form = form_of(structure, tuple((each.shape, each.dtype) for each in numbers))
    return np.concatenate([np.zeros(0), *(each.ravel() for each in numbers)], dtype=np.float64), form


_of_model = lru_cache(8)(_packed)  # which stays the same, pass after pass
_structure = lru_cache(8)(lambda emission: form_of(jax.tree.structure(emission), ()))


def _unpacked(forms: tuple[Form, Form], packed: Any) -> Any:
    """Model, parameters, what else is given, and the log base measure."""
    outer, inner = forms
    return outer.unpacked(packed[: outer.size]), *inner.unpacked(packed[outer.size :])


def _chunk_length(rows: int) -> int:
    """The length with which the windows fill the GPUs a whole number of times, none of them long."""
    at_once = AT_ONCE * windows.mesh().size
    rounds = -(-rows // (at_once * LONGEST_CHUNK))
    return max(LEAST_CHUNK, -(-rows // (at_once * rounds)))


def _lay(reader: Reader, partition: Partition, own: np.ndarray, size: int, plan: Plan) -> Block:
    """The windows `own`, filled up to `size`; every device is given the rows of its share, and no others."""
    place = partition.locate(own, plan.left)
    first, last = int(place.begin[0] - place.left[0]), int(place.begin[-1] + place.core[-1] + place.right[-1])
    numbers = reader.numbers(first, last).astype(np.float32)
    at = np.arange(plan.left + plan.core + plan.right)[:, None] + (place.begin - first - plan.left)
    rows = numbers[np.clip(at, 0, len(numbers) - 1)]  # outside a window they hold anything
    spare = (0, size - len(own))  # a lane without a window has no rows of its own, and no core
    parts = (
        np.arange(len(own)) % plan.number_stride,
        plan.left - place.left,
        plan.left + place.core + place.right,
        place.core,
        place.opens,
        ~np.asarray(partition.locate(own, 0).opens, bool),
    )
    *places, joined = (windows.spread(np.pad(np.asarray(each, np.int32), spare)) for each in parts)
    laid = np.pad(np.swapaxes(rows, 1, 2).reshape(-1, len(own)), ((0, 0), spare))
    return Block(windows.spread(laid, 1), Lanes(*places), joined.astype(bool))


def gpu_totals(
    model: HMM, params: Mapping[str, np.ndarray], sequences: Sequences, progress: Any = None, fused: Fused = ALONE
) -> Any:
    """Sums over all data at checked parameters by the GPU kernel, as `Laid.totals` gives them; None where it cannot
    give them: without a GPU, for data that lie in files or are passed over elsewhere, for emissions without a lowering
    of these data, and where chunks do not forget what came before them."""
    here = sequences.executor.here and sequences.in_memory
    if not (here and windows.usable() and model.n_states <= windows.MOST_STATES):
        return None
    known = _laid.setdefault(sequences, {})
    key = (_structure(model.emission), model.n_states)
    if key not in known and Reader(model, sequences).lowering is None:
        return None
    # The overlap that sufficed before is likely to do so again.
    begin = OVERLAPS.index(known[key].overlap) if key in known else 0
    for overlap in OVERLAPS[begin:]:
        if key not in known or known[key].overlap != overlap:
            known[key] = Laid(Reader(model, sequences), overlap)
        found = known[key].totals(model, params, fused)
        if found is not None and progress is not None:
            progress(sequences.length)
        if found is not None or overlap >= known[key].longest:
            return found
    return None


@partial(jax.jit, static_argnums=1)
def block_sums(model: HMM, plan: Plan, block: Block, params: Mapping[str, jax.Array], ends: jax.Array) -> Any:
    """Of one block the largest disagreement of its windows and whether underflow lost anything; log likelihood, first
    states, transitions and sums in float64; and log messages `(2, K)` leaving, and behind, its last window, for the
    next block as `ends`."""
    n, (matrix, initial) = plan.states, (params["transition"], params["initial"])
    lowering = model.emission.lowering
    assert lowering is not None
    natural = lowering.natural(params)
    parameters = flat_parameters(plan, matrix, initial, jnp.full(n, 1.0 / n), natural)
    with jax.enable_x64(False):
        run = windows.on_each(partial(run_windows, plan), windows.along(1))
        found = run(block.rows, block.lanes, parameters)
    # Entries that are too small to be compared are taken for equal: the kernel watches what they may cost.
    messages = Messages(*jnp.log(jnp.swapaxes(jnp.maximum(found.edges, COMPARED), 1, 2)))
    out, behind = (
        jnp.concatenate([end[None], each[:-1]])
        for end, each in zip(ends, (messages.forward_out, messages.backward_in), strict=True)
    )
    gap = jnp.maximum(
        forward_gap(jnp.log(matrix.astype(jnp.float32)), out, messages.forward_in),
        posterior_gap(out, behind, messages.backward_out),
    )
    total = partial(jnp.sum, axis=-1, dtype=jnp.float64)
    first, pairs = total(found.first), total(found.transitions)
    sums, change = _as_asked(plan, natural, parameters.packs.reshape(n, -1) / scales(plan), total(found.sums))
    change += jnp.sum(pairs * (matrix - parameters.transition.reshape(n, n)))
    change += jnp.sum(first * jnp.where(first > 0, jnp.log(initial / parameters.initial), 0.0))
    checks = jnp.max(jnp.where(block.joined, gap, 0.0)), jnp.any(found.lost)
    all_sums = total(found.log_likelihood) + change, first, pairs * matrix, sums
    return checks, all_sums, jnp.stack([messages.forward_out[-1], messages.backward_in[-1]])


def _as_asked(plan: Plan, natural: jax.Array, rounded: jax.Array, sums: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sums, and the change of the log likelihood, from natural parameters as they were rounded for the kernel to those
    that were asked for, to first order (F8). At 20 million rows rounding can move the log likelihood by ten units."""
    if plan.kind != GAUSSIAN:
        return sums, jnp.sum(sums * jnp.where(sums != 0, natural - rounded, 0.0))
    dim = plan.width
    parts = partial(jnp.split, indices_or_sections=(1, 1 + dim), axis=-1)
    (constant, mean, whiten), (its_constant, its_mean, its_whiten) = parts(natural), parts(rounded)
    (count, first, second), move, (i, j) = parts(sums), mean - its_mean, np.triu_indices(dim)
    about = second - first[:, i] * move[:, j] - move[:, i] * first[:, j] + count * move[:, i] * move[:, j]

    def distance(packed: jax.Array, moments: jax.Array) -> jax.Array:
        whitening = jnp.zeros((len(packed), dim, dim)).at[:, *np.tril_indices(dim)].set(packed)
        precision = jnp.einsum("kai,kaj->kij", whitening, whitening)[:, i, j]
        return jnp.sum(jnp.where(i == j, 0.5, 1.0) * precision * moments)

    change = jnp.sum(count * (constant - its_constant)) - distance(whiten, about) + distance(its_whiten, second)
    return jnp.concatenate([count, first - count * move, about], axis=1), change


@partial(jax.jit, static_argnums=(0, 1, 2))
def _sums(forms: tuple[Form, Form], plan: Plan, then: Any, block: Block, packed: Any, ends: Any, before: Any) -> Any:
    """`block_sums` at parameters in one array, added to those of the blocks `before`: with that array, which stays on
    the device for the blocks that follow, and the messages behind it; or, with `then`, all that `_made` names."""
    model, params, given, log_base_measure = _unpacked(forms, packed)
    checks, sums, ends = block_sums(model, plan, block, params, ends)
    if before is not None:
        checks = (jnp.maximum(checks[0], before[0][0]), checks[1] | before[0][1])
        sums = tuple(map(jnp.add, sums, before[1]))
    if then is None:
        return packed, ends, (checks, sums)
    lost = checks[1] | ~jnp.isfinite(sums[0])
    made = then(model, params, given, (sums[0] + log_base_measure, *sums[1:]))
    found = [jnp.ravel(each).astype(jnp.float64) for each in jax.tree.leaves((checks[0], lost, made))]
    there = NamedSharding(windows.mesh(), PartitionSpec(), memory_kind="pinned_host")  # of the host
    return jax.device_put(jnp.concatenate(found), there)


@cache
def _made(forms: tuple[Form, Form], plan: Plan, then: Any) -> Form:
    """What the last program gives back: the largest disagreement, whether anything was lost, and what `then` makes."""
    n, number = plan.states, partial(jax.ShapeDtypeStruct, dtype=jnp.float64)
    packed, sums = number((sum(form.size for form in forms),)), tuple(map(number, ((), (n,), (n, n), (n, plan.sums))))
    made = jax.eval_shape(lambda packed, sums: then(*_unpacked(forms, packed)[:3], sums), packed, sums)
    leaves, structure = jax.tree.flatten((number(()), number(()), made))
    return form_of(structure, tuple((each.shape, np.dtype(np.float64)) for each in leaves))
