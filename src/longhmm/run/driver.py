"""The only loop: compiled blocks of steps, chains together or side by side. The random numbers of a step depend on
seed, chain and number of the step alone, so that neither the length of a block nor an interruption changes a draw."""

import operator
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import in_double
from longhmm.backends.programs import quick
from longhmm.data.executor import ahead
from longhmm.errors import LongHMMError
from longhmm.run.generator import folded, key_from, seed_words
from longhmm.run.limit import LOOK, Limit, TimeIsOver
from longhmm.samplers.contract import Sampler, block_size
from longhmm.target.target import Target

BLOCK_STEPS = 2000  # steps between two looks at the clock, at most
BLOCK_DRAWS = 100
Tick = Callable[[float], None] | None
Outcome = tuple[Any, tuple[Any, dict[str, Any]]]  # of a block: the state behind it, draws and their statistics
CTRL_C, TIME_LIMIT = "Ctrl-C", "the time limit"
GRACE = 1.0  # seconds beyond the time limit that a block under way is waited for
DRAWING = "drawing"
ALONE = 0.2  # share of its adaptation that the first chain does alone: every program is compiled by then


@dataclass
class RunState:
    """Where chains stand: one state each, steps taken, and blocks of what was recorded: draws and their statistics."""

    states: list[Any]
    steps: int = 0
    recorded: list[tuple[Any, dict[str, np.ndarray]]] = field(default_factory=list)
    alive: list[bool] = field(default_factory=list)
    stopped: str | None = None

    def copy(self) -> "RunState":
        return RunState(list(self.states), self.steps, list(self.recorded), list(self.alive))

    def leaves(self) -> dict[str, Any]:
        """All of it, with trees as lists of their leaves: what a checkpoint holds."""
        draws, stats = self.joined() if self.recorded else (None, None)
        return {
            "steps": self.steps,
            "alive": self.alive,
            "states": [jax.tree.leaves(state) for state in self.states],
            "draws": jax.tree.leaves(draws) if self.recorded else None,
            "stats": stats,
        }

    def like(self, leaves: Mapping[str, Any], record: Any) -> "RunState":
        """The state that `leaves` came from; this one, and one record, give the shapes of its trees."""
        pairs = zip(self.states, leaves["states"], strict=True)
        states = [jax.tree.unflatten(jax.tree.structure(state), each) for state, each in pairs]
        found = RunState(states, leaves["steps"], alive=list(leaves["alive"]))
        if leaves["draws"] is not None:
            found.recorded = [(jax.tree.unflatten(jax.tree.structure(record), leaves["draws"]), leaves["stats"])]
        return found

    @property
    def draws(self) -> int:
        return sum(jax.tree.leaves(block)[0].shape[1] for block in self.recorded)

    def joined(self) -> tuple[Any, dict[str, np.ndarray]]:
        """All recorded draws, `(chain, draw, ...)`, and their statistics, `(chain, draw)`."""
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self.recorded)


class Driver:
    """Runs the chains of one sampler on one target."""

    def __init__(self, sampler: Sampler, target: Target, seed: int, limit: Limit | None = None) -> None:
        self.sampler, self.target, self.limit = sampler, target, limit or Limit()
        self.words = seed_words(seed)
        self.scope = partial(in_double if target.compiled else jax.enable_x64, sampler.x64)
        self._block_steps = 1  # of the next block: as many as take a moment
        self._compiled_once = False
        self._together = target.compiled and target.together and not target.on_host

    def chain_key(self, chain: int) -> jax.Array:
        return key_from(folded(self.words, chain))

    def start(self, starts: Sequence[Mapping[str, Any]], *, adapt: bool = True, tick: Tick = None) -> RunState:
        """Initial states, one per chain, adapted unless they are to be replaced; `tick` counts adapted chains."""
        compiled = threading.Event()

        def one(chain: int) -> Any:
            try:
                while chain and not compiled.wait(LOOK):
                    self.limit.check()
                key, behind = key_from(folded(folded(self.words, chain), 2**31 - 1)), 0.0
                with self.scope():
                    kind = np.float64 if self.sampler.x64 else np.float32
                    u = jax.device_put({name: np.asarray(each, kind) for name, each in starts[chain].items()})
                    state = self.sampler.init(self.target, key, u)
                for adapted, share in self.sampler.adapt(self.target, key, state) if adapt else ():
                    self.limit.check()
                    state = adapted
                    if share >= ALONE:
                        compiled.set()
                    if tick is not None:
                        tick(share - behind)
                    behind = share
                return state
            finally:
                compiled.set()

        works = [partial(one, chain) for chain in range(len(starts))]
        states = self.limit.run_all(works, "adapting the sampler" if adapt else "starting")
        return RunState(states, alive=[True] * len(starts))

    def advance(
        self, run: RunState, draws: int, thin: int, *, record: bool = True, tick: Tick = None, after_block: Any = None
    ) -> RunState:
        """Go on until `draws` more draws, `thin` steps apart, are recorded (or taken, with `record=False`), or Ctrl-C
        or the time limit end it, with all draws of the blocks so far."""
        remaining = draws
        try:
            while remaining > 0:
                count = int(np.clip(self._block_steps // max(thin, 1), 1, min(remaining, BLOCK_DRAWS)))
                began = time.monotonic()
                self._take(run, self._blocks(run, count, thin), count * thin, record)
                self._block_steps = min(block_size(count * thin, time.monotonic() - began), BLOCK_STEPS)
                remaining -= count
                if tick is not None:
                    tick(count * thin)
                if after_block is not None:
                    after_block()
                if self.limit.left <= 0:
                    run.stopped = TIME_LIMIT
                    break
        except KeyboardInterrupt:
            run.stopped = CTRL_C
        except TimeIsOver:
            run.stopped = TIME_LIMIT
        return run

    def _blocks(self, run: RunState, count: int, thin: int) -> list[Any]:
        if self._together:
            return self.limit.run(partial(self._blocks_together, run, count, thin), DRAWING, GRACE)
        works = [partial(self._block, run, count, thin, chain) for chain in range(len(run.states))]
        # The first time, the first chain runs alone: JAX's store of programs bears no compiling in many threads.
        alone = [] if self._compiled_once else [self.limit.run(works.pop(0), DRAWING, GRACE)]
        self._compiled_once = True
        return alone + self.limit.run_all(works, DRAWING, GRACE)

    def _take(self, run: RunState, outcome: list[Any], steps: int, record: bool) -> None:
        for chain, (state, (_, stats)) in enumerate(outcome):
            run.alive[chain] = run.alive[chain] and bool(np.all(stats["finite"]))
            if run.alive[chain]:
                run.states[chain] = state
        if not any(run.alive):
            remedy = "use a smaller step size, more windows per step, or the default sampler"
            raise LongHMMError(f"The chain left the region where the model is finite: {remedy}.")
        run.steps += steps
        if record:
            run.recorded.append(jax.tree.map(lambda *parts: np.stack(parts), *(recorded for _, recorded in outcome)))

    def _block(self, run: RunState, count: int, thin: int, chain: int) -> Outcome:
        state, key = run.states[chain], self.chain_key(chain)
        with self.scope():
            if not self.target.compiled or self.target.on_host:
                return self._by_draws(state, key, run.steps, count, thin)
            state, recorded = _compiled(self.sampler, self.target, state, key, run.steps, thin, count, BLOCK_DRAWS)
            return state, jax.tree.map(lambda each: np.asarray(each)[:count], recorded)

    def _blocks_together(self, run: RunState, count: int, thin: int) -> list[Outcome]:
        with self.scope():
            # On the host: there are many small arrays, and every one would be a program to start.
            states = jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *run.states)
            keys = key_from(folded(self.words, np.arange(len(run.states))))
            given = (states, keys, run.steps, thin, count)
            found = _compiled_together(self.sampler, self.target, *given, most=BLOCK_DRAWS)
            state, recorded = jax.tree.map(np.asarray, found)
        recorded = jax.tree.map(lambda each: each[:, :count], recorded)
        return [jax.tree.map(operator.itemgetter(chain), (state, recorded)) for chain in range(len(run.states))]

    def _by_draws(self, state: Any, key: jax.Array, first: int, count: int, thin: int) -> Outcome:
        """Draw by draw: steps that are not compiled, or on windows of files, while those of the next draw are read."""

        def read(draw: int) -> tuple[jax.Array, Any]:
            with self.scope():  # JAX keeps this setting for each thread
                draw_keys, step_keys = _step_keys(key, first + draw * thin, thin)
                return step_keys, self.target.minibatches(draw_keys)

        take, recorded = _given if self.target.compiled else partial(_by_hand, self.limit.check), []
        for step_keys, stacked in ahead(read, count):
            self.limit.check()
            state, found = take(self.sampler, self.target, state, step_keys, stacked)
            recorded.append(found)
        return state, jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *recorded)


@partial(jax.jit, static_argnames=("thin",))
def _step_keys(key: jax.Array, first: jax.Array, thin: int) -> tuple[jax.Array, jax.Array]:
    """The generators of `thin` steps from number `first` on: those of their windows, and those of the steps."""
    pairs = jax.vmap(lambda number: jax.random.split(jax.random.fold_in(key, number)))(first + jnp.arange(thin))
    return pairs[:, 0], pairs[:, 1]


def _step(sampler: Sampler, target: Target, key: jax.Array, state: Any, minibatch: Any) -> tuple[Any, dict[str, Any]]:
    state, info = sampler.step(target, key, state, minibatch)
    return state, {"finite": info.finite, **info.stats}


@partial(jax.jit, static_argnames=("most",))
def _compiled(
    sampler: Sampler, target: Target, state: Any, key: jax.Array, first: Any, thin: Any, count: Any, most: int
) -> Outcome:
    """`count` draws, `thin` steps apart, from step `first` on, in room for `most`: one program for all."""

    def one_step(number: jax.Array, state: Any) -> tuple[Any, dict[str, jax.Array]]:
        draw_key, step_key = jax.random.split(jax.random.fold_in(key, number))
        return _step(sampler, target, step_key, state, target.minibatch(draw_key))

    # Traced ahead, for the shapes: draws begin with statistics that say nothing, so that the step is compiled once.
    shapes = jax.eval_shape(one_step, first, state)[1]
    nothing = {name: jnp.ones(each.shape, each.dtype) for name, each in shapes.items()}

    def one_draw(draw: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, room = carry

        def body(each: jax.Array, carry: tuple[Any, dict[str, jax.Array]]) -> tuple[Any, dict[str, jax.Array]]:
            state, now = one_step(first + draw * thin + each, carry[0])
            return state, {**now, "finite": carry[1]["finite"] & now["finite"]}  # of the last step, but for `finite`

        state, stats = jax.lax.fori_loop(0, thin, body, (state, nothing))
        return state, jax.tree.map(lambda each, new: each.at[draw].set(new), room, (sampler.record(state), stats))

    kinds = jax.eval_shape(sampler.record, state), shapes
    room = jax.tree.map(lambda each: jnp.zeros((most, *each.shape), each.dtype), kinds)
    return jax.lax.fori_loop(0, count, one_draw, (state, room))


@partial(quick, level=1, static_argnames=("most",))
def _compiled_together(sampler: Sampler, target: Target, states: Any, keys: jax.Array, *given: Any, most: int) -> Any:
    """All chains, stacked along the leading axis."""
    return jax.vmap(lambda state, key: _compiled(sampler, target, state, key, *given, most=most))(states, keys)


@jax.jit
def _given(sampler: Sampler, target: Target, state: Any, keys: jax.Array, minibatches: Any) -> Outcome:
    """The steps of one draw on minibatches that were read before."""
    steps = keys, minibatches
    state, stats = jax.lax.scan(lambda at, each: _step(sampler, target, each[0], at, each[1]), state, steps)
    last = {name: value[-1] for name, value in stats.items()}
    return state, (sampler.record(state), {**last, "finite": jnp.all(stats["finite"])})


def _by_hand(
    check: Callable[[], None], sampler: Sampler, target: Target, state: Any, keys: jax.Array, minibatches: None
) -> Outcome:
    """The steps of one draw, for samplers whose steps are not compiled as a whole."""
    finite = True
    for key in keys:
        check()
        state, stats = _step(sampler, target, key, state, None)
        finite = finite and bool(stats["finite"])
    return state, (sampler.record(state), {**stats, "finite": finite})
