"""Full passes on a GPU: all data as long windows side by side, recursions in float32, sums in float64.

Data are laid out once, the numbers of neighbouring windows next to each other, so that the lanes of a program read
consecutive memory. Several GPUs of one host each hold a run of neighbouring windows. What comes into a chunk from its
neighbours is found by starting `overlap` rows before it and ending as many behind it, and compared afterwards, as on
the CPU (see `stitch`), to what single precision can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from longhmm.backends.pallas import devices, windows
from longhmm.backends.pallas.kernel import run_windows
from longhmm.backends.pallas.plan import COMPARED, Config, Form, Found, Lanes, Parameters, Plan
from longhmm.backends.protocol import Messages
from longhmm.backends.read import Reader
from longhmm.backends.stitch import forward_gap, posterior_gap
from longhmm.data.layout import Partition
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM

LONGEST_CHUNK, LEAST_CHUNK = 592, 64  # rows of a window
AT_ONCE = 132 * 8 * 32  # windows that a large GPU runs at the same time: processors, warps of each, and lanes
OVERLAPS = (32, 128, 512)
BLOCK_ENTRIES = 1 << 28  # forward messages of a block, rows times states: one gigabyte
TOLERANCE = 1e-5  # log odds, or total variation, below which two messages in single precision count as the same


class Block(NamedTuple):
    """Windows that run side by side: rows `(time and number, window)`, their places (without origins, which follow from
    the layout), and which of them follow on their left neighbour within one sequence. All are spread over devices."""

    rows: jax.Array
    lanes: Lanes
    joined: jax.Array


class BlockSums(NamedTuple):
    """Sums over a block in float64, the messages at the edges of its windows, and whether underflow lost anything."""

    log_likelihood: jax.Array
    first: jax.Array
    transitions: jax.Array
    sums: jax.Array
    gap: jax.Array
    ends: jax.Array
    lost: jax.Array


class Laid:
    """Data on the device, ready for passes with one overlap. It does not keep the data it was made from alive."""

    def __init__(
        self,
        reader: Reader,
        overlap: int,
        *,
        chunk: int | None = None,
        config: Config | None = None,
        interpret: bool | None = None,
    ) -> None:
        sequences, n = reader.sequences, reader.model.n_states
        self.longest = int(np.diff(sequences.offsets).max())
        self.overlap, self.log_base_measure = overlap, reader.log_base_measure()
        config = windows.config_for(n) if config is None else config
        together = config.lanes * devices.mesh().size  # windows come in so many at a time
        partition = Partition(sequences.offsets, chunk or _chunk_length(sequences.length))
        spans = (overlap, partition.core_length, overlap)
        interpret = windows.interpreted() if interpret is None else interpret
        lowering = reader.lowering
        assert lowering is not None
        form = Form(lowering.kind, lowering.width, lowering.pack, lowering.sums)
        self.plan = Plan(form, n, *spans, 0, 0, 0, config, interpret, joined=True)
        # Blocks of one size share a compiled program.
        most = max(1, BLOCK_ENTRIES // n // sum(spans) // config.lanes)
        programs = -(-partition.n_blocks // together)
        size = -(-programs // -(-programs // most)) * together
        self.blocks = [
            _lay(reader, partition, np.arange(begin, min(begin + size, partition.n_blocks)), size, self.plan)
            for begin in range(0, partition.n_blocks, size)
        ]

    def totals(self, model: HMM, params: Mapping[str, np.ndarray]) -> tuple[float, Any, Any, Any] | None:
        """Log likelihood, first states, transitions and sums of all data at checked parameters; None where messages at
        boundaries do not agree or underflow lost something."""
        with jax.enable_x64(True):
            arrays = {name: jnp.asarray(value, jnp.float64) for name, value in params.items()}
            ends = jnp.zeros((2, model.n_states), jnp.float32)
            found = []
            for block in self.blocks:
                found.append(block_sums(model, self.plan, block, arrays, ends))
                ends = found[-1].ends
            parts = jax.device_get(found)
        if any(part.lost for part in parts) or not max(part.gap for part in parts) <= TOLERANCE:
            return None
        likelihood, first, transitions, sums = (np.sum([part[i] for part in parts], axis=0) for i in range(4))
        if not np.isfinite(likelihood):
            return None
        return float(likelihood) + self.log_base_measure, first, transitions, sums


def _chunk_length(rows: int) -> int:
    """The length with which the windows fill the GPUs a whole number of times, none of them long."""
    at_once = AT_ONCE * devices.mesh().size
    rounds = -(-rows // (at_once * LONGEST_CHUNK))
    return max(LEAST_CHUNK, -(-rows // (at_once * rounds)))


def _lay(reader: Reader, partition: Partition, own: np.ndarray, size: int, plan: Plan) -> Block:
    place = partition.locate(own, plan.left)
    parts = (
        plan.left - place.left,
        plan.left + place.core + place.right,
        place.core,
        place.opens,
        ~np.asarray(partition.locate(own, 0).opens, bool),
    )
    # A lane without a window has no rows of its own, and no core.
    *places, joined = (devices.spread(np.pad(np.asarray(each, np.int32), (0, size - len(own)))) for each in parts)
    # Every device is given the rows of its own windows, and no others.
    row = devices.mesh().devices
    share = size // row.size
    rows = [
        _lay_share(reader, partition, own[number * share : (number + 1) * share], share, plan, device)
        for number, device in enumerate(row)
    ]
    whole = NamedSharding(devices.mesh(), devices.along(1))
    laid = jax.make_array_from_single_device_arrays((rows[0].shape[0], size), whole, rows)
    return Block(laid, Lanes(None, *places), joined.astype(bool))


def _lay_share(reader: Reader, partition: Partition, own: np.ndarray, size: int, plan: Plan, device: Any) -> jax.Array:
    """Rows of the windows of one device."""
    total = plan.left + plan.core + plan.right
    rows, origin = np.zeros((0, plan.form.width), np.float32), np.zeros(size, np.int32)
    if len(own):
        place = partition.locate(own, plan.left)
        first, last = int(place.begin[0] - place.left[0]), int(place.begin[-1] + place.core[-1] + place.right[-1])
        rows = reader.numbers(first, last).astype(np.float32)
        origin[: len(own)] = place.begin - first - plan.left
    # A block can have no more rows than its windows hold; as many in each, so that they share a program.
    rows = np.pad(rows, ((0, max(0, size * plan.core + plan.left + plan.right - len(rows))), (0, 0)))
    return _lay_out(jax.device_put(rows, device), jax.device_put(origin, device), total)


def _reader(model: HMM, sequences: Sequences) -> Reader | None:
    """What reads the rows for the kernel; None where it cannot be used."""
    if not (windows.usable() and windows.serves(model.n_states) and sequences.in_memory):
        return None
    reader = Reader(model, sequences)
    return None if reader.lowering is None else reader


def gpu_totals(
    model: HMM, params: Mapping[str, np.ndarray], sequences: Sequences, progress: Callable[[int], None] | None = None
) -> tuple[float, Any, Any, Any] | None:
    """Sums over all data at checked parameters by the GPU kernel, or None where it cannot give them.

    It cannot without a GPU, for data that lie in files or are passed over elsewhere, for emissions without a form of
    their own, for states that are known and rows that are observed in part, and where chunks do not forget what came
    before them.
    """
    reader = _reader(model, sequences) if sequences.executor.here else None
    if reader is None:
        return None
    known = _laid.setdefault(sequences, {})
    key = (jax.tree.structure(model.emission), model.n_states)
    # The overlap that sufficed before is likely to do so again.
    begin = OVERLAPS.index(known[key].overlap) if key in known else 0
    for overlap in OVERLAPS[begin:]:
        if key not in known or known[key].overlap != overlap:
            known[key] = Laid(reader, overlap)
        found = known[key].totals(model, params)
        if found is not None and progress is not None:
            progress(sequences.length)
        if found is not None or overlap >= known[key].longest:
            return found
    return None


_laid: WeakKeyDictionary[Sequences, dict[Any, Laid]] = WeakKeyDictionary()


@partial(jax.jit, static_argnums=2)
def _lay_out(rows: jax.Array, origin: jax.Array, total: int) -> jax.Array:
    """`(time and number, window)`; rows outside a window hold anything."""
    at = jnp.arange(total, dtype=jnp.int32)[:, None] + origin
    return jnp.swapaxes(rows[jnp.clip(at, 0, rows.shape[0] - 1)], 1, 2).reshape(-1, origin.shape[0])


@partial(jax.jit, static_argnums=1)
def block_sums(model: HMM, plan: Plan, block: Block, params: Mapping[str, jax.Array], ends: jax.Array) -> BlockSums:
    """One block; `ends (2, K)` are log messages: leaving, and behind, the last window of the block before."""
    n = plan.states
    narrow = {name: value.astype(jnp.float32) for name, value in params.items()}
    parameters = (narrow["transition"], narrow["initial"], jnp.full(n, 1.0 / n, jnp.float32))
    lowering = model.emission.lowering
    assert lowering is not None
    natural = lowering.natural(params).astype(jnp.float32)
    with jax.enable_x64(False):
        found = _run(plan, block, windows.flat_parameters(plan.form, parameters, natural))
    # Entries that are too small to be compared are taken for equal: the kernel watches what they may cost.
    messages = Messages(*jnp.log(jnp.swapaxes(jnp.maximum(found.edges, COMPARED), 1, 2)))
    out, behind = (
        jnp.concatenate([end[None], each[:-1]])
        for end, each in zip(ends, (messages.forward_out, messages.backward_in), strict=True)
    )
    gap = jnp.maximum(
        forward_gap(jnp.log(parameters[0]), out, messages.forward_in), posterior_gap(out, behind, messages.backward_out)
    )
    total = partial(jnp.sum, axis=-1, dtype=jnp.float64)
    return BlockSums(
        total(found.log_likelihood),
        total(found.first),
        total(found.transitions) * params["transition"],
        total(found.sums),
        jnp.max(jnp.where(block.joined, gap, 0.0)),
        jnp.stack([messages.forward_out[-1], messages.backward_in[-1]]),
        jnp.any(found.lost),
    )


def _run(plan: Plan, block: Block, parameters: Parameters) -> Found:
    """The kernel on the windows of a block, each device on its own."""
    row = devices.mesh()
    count = block.rows.shape[1] // row.size
    own = plan._replace(row_stride=plan.form.width * count, number_stride=count)

    def share(rows: jax.Array, lanes: Lanes, parameters: Parameters) -> Found:
        return run_windows(own, rows.reshape(-1), lanes._replace(origin=jnp.arange(count, dtype=jnp.int32)), parameters)

    if row.size == 1:
        return share(block.rows, block.lanes, parameters)
    given = (devices.along(1), devices.along(0), PartitionSpec())
    run = jax.shard_map(share, mesh=row, in_specs=given, out_specs=devices.found_by_window(), check_vma=False)
    return run(block.rows, block.lanes, parameters)
