"""One run from start to finish: tune, warm up, then draw until every parameter has been seen often enough. A `Run`
holds all that influences a draw, so that one that goes on, after being killed or for more draws, is the same run."""

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import numpyro

from longhmm.model.initialise import initial_params
from longhmm.progress import Bar
from longhmm.run import checkpoint
from longhmm.run.chains import Chains, bulk_effective_size, notes_on
from longhmm.run.checkpoint import from_plain, locked, to_plain
from longhmm.run.cluster import ClusterDriver
from longhmm.run.compilation import cached_compilation
from longhmm.run.driver import CTRL_C, Driver, RunState, Tick
from longhmm.run.limit import Limit
from longhmm.run.request import Fingerprint, Request, refusal
from longhmm.samplers import spare_states
from longhmm.samplers.contract import Sampler, Start
from longhmm.target.buffer_length import FixedBuffer
from longhmm.target.coordinates import Arrays, Flat, constrain, lifted, unconstrain
from longhmm.target.target import StreamedPosterior, Target
from longhmm.version import __version__

SAVE_EVERY = 30.0  # seconds between two checkpoints
WANTED_SHARE = 0.5  # effective draws per draw, where draws are to be spaced
ROUNDS = 4  # how often the distance between draws is doubled to reach the wanted effective size
PHASES = 5  # of the warm-up on windows: buffer and gap are measured anew after each
LOOKS = 100  # states of every chain in the second half of the warm-up that a sampler may see, at most
MOVING = (
    "run longer: the chains were still moving away from the mode after the warm-up; start elsewhere (init) or use an "
    "exact sampler such as NUTS()"
)
KEPT = ("why_exact", "bound_at", "buffer", "thin", "rounds", "notes")  # of a run by its checkpoint, as they are
CHEAPER = "for data of this length it costs less per draw than windows"
# Full gradients that an exact sampler spends on each effective draw of a chain, and on its adaptation, about.
GRADIENTS, ADAPTATION = 4, 1000
OVERHEAD = 2000  # what a gradient costs beside its rows, in observations
A_MOMENT, LONG = 5e7, 3e9  # rows: an exact sampler that has read more does not go on for draws that are less alike
WARM_UP = 20  # independent draws that chains on windows warm up for
WARM_UP_STEPS = 50  # of an exact sampler that begins in the posterior already


@dataclass
class Run:
    """A request, and how far it has been carried out."""

    request: Request
    tuned: Sampler | None = None  # the sampler as it tuned itself
    why_exact: str = ""  # why an exact sampler draws in its place
    bound_at: Arrays | None = None  # coordinates at which buffers and gaps were last fixed
    buffer: int | None = None  # the length of buffers there, where the sampler has any
    thin: int = 1  # steps between two draws
    rounds: int = 0  # how often that was doubled
    state: RunState | None = None  # chains and draws, after the warm-up
    notes: tuple[str, ...] = ()  # what the warm-up had to tell
    mark: Fingerprint | None = None  # of what the checkpoint belongs to
    gradient: Any = field(default=None, repr=False)  # the exact one, as checks of the draws have asked for it
    near: Any = field(default=None, repr=False)  # the mode and curvature that tuning may begin from
    packed: Mapping[str, Any] | None = field(default=None, repr=False)  # the state, until its shapes are known

    @property
    def sampler(self) -> Sampler:
        """The sampler that draws; an exact one learns the shape of the posterior by itself if the mode misled."""
        assert self.tuned is not None
        if not self.why_exact:
            return self.tuned
        from longhmm.samplers.full_data_hmc import NUTS

        mode, depth, most = self.tuned.mode(), NUTS.max_tree_depth, self.request.chains * self.request.draws
        if self.spare:
            depth = spare_states.tree_depth(most * (OVERHEAD + self.request.sequences.length), depth)
        known = None if mode is None or self.why_exact != CHEAPER else np.linalg.inv(mode[1])
        return NUTS(inverse_mass=known, max_tree_depth=depth)

    spare = property(lambda self: spare_states.noted(self.notes) is not None, doc="Whether fewer states would do.")

    def find(self) -> None:
        """Go on from the checkpoint, where there is one; refused if it was saved by a run of another problem."""
        request = self.request
        if request.checkpoint is None or self.mark is not None:
            return
        self.mark = request.fingerprint()
        header, arrays = (None if self.tuned is not None else checkpoint.load(request.checkpoint)) or (None, {})
        if header is None:
            return
        why = refusal(header.get("fingerprint"), self.mark)
        if why:
            other = f"The checkpoint in {request.checkpoint} belongs to another run, since {why}"
            raise checkpoint.CheckpointError(f"{other}: choose another directory, or delete it to start over.")
        kept = from_plain(header["run"], arrays, known=(type(request.sampler),))
        self.tuned = request.sampler if kept["tuned"] is None else kept["tuned"]
        self.packed = kept["state"]
        for name in KEPT:
            setattr(self, name, kept[name])

    def save(self) -> None:
        if self.request.checkpoint is None:
            return
        arrays: Arrays = {}
        kept = {name: getattr(self, name) for name in KEPT}
        kept["tuned"] = None if self.tuned is self.request.sampler else self.tuned
        kept["state"] = None if self.state is None else self.state.leaves()
        plain = to_plain(kept, arrays, known=(type(self.request.sampler),))
        checkpoint.save(self.request.checkpoint, {"fingerprint": self.mark, "run": plain}, arrays)


def carry_out(run: Run, bar: Bar | None = None, limit: Limit | None = None, reserve: float = 0.0) -> Chains:
    """Start a run, or go on with one; `reserve` is the share of the time after tuning that is left for what follows."""
    bar, limit = bar or Bar(False), limit or Limit()
    with locked(run.request.checkpoint), cached_compilation():
        bar.phase("reading the data")
        limit.run(run.find, "reading the data")
        watched = replace(run.request, sequences=limit.watch(run.request.sequences))
        if run.tuned is None:
            tune(run, watched, bar, limit)
        limit = limit.sooner(reserve)
        bar.phase("getting ready")
        session = limit.run(partial(_Session, run, watched, bar, limit), "getting ready")
        state = session.begin()
        session.draw(state)
        return session.chains(state)


def tune(run: Run, request: Request, bar: Bar, limit: Limit) -> None:
    """Let the sampler find its settings by passes over all data, which are kept at once."""
    start = Start(request.init, request.windows, request.buffer, request.seed, bar, run.near)
    target = StreamedPosterior(request.model, request.sequences)
    run.tuned = limit.run(partial(request.sampler.tune, target, start), "finding the mode")
    if request.automatic:
        run.why_exact = CHEAPER if cheaper(request.sequences.length, run.tuned.cost, request.draws) else ""
        look = partial(spare_states.notes_on, request.model, run.tuned.mode(), request.sequences, request.seed)
        run.notes = limit.run(look, "looking for states to spare")
    if run.tuned is not request.sampler:
        run.save()


def cheaper(length: int, cost: float, draws: int) -> bool:
    """Whether the exact sampler costs less for `draws` draws of a chain, each of which costs windows `cost` rows."""
    gradient = OVERHEAD + length  # adaptation counts where it is not done in a moment: it may cost more than all draws
    adaptation = ADAPTATION * gradient
    whole = adaptation + GRADIENTS * gradient * draws < (WARM_UP + draws) * cost
    return GRADIENTS * gradient < cost and (whole or adaptation < A_MOMENT)


class _Session:
    """A run under way: its sampler tied to the data, and the driver."""

    def __init__(self, run: Run, request: Request, bar: Bar, limit: Limit) -> None:
        self.run, self.request, self.bar, self.limit = run, request, bar, limit
        self.sampler, self.saved = run.sampler, time.monotonic()
        assert run.tuned is not None
        known = None if run.bound_at is None else [run.bound_at] * request.chains
        self.starts = run.tuned.starts(request.chains, request.seed) or known or _starts(request)
        if run.bound_at is None:
            run.bound_at = self.starts[0]
            run.thin = self.sampler.spacing if request.thin is None else request.thin
        usual = WARM_UP_STEPS if run.why_exact else self.sampler.warmup
        self.warmup = usual if request.warmup is None else request.warmup
        self.bind(self.target_at(run.bound_at, request.buffer if run.buffer is None else FixedBuffer(run.buffer)))

    def target_at(self, u: Mapping[str, np.ndarray], buffer: Any) -> Target:
        """What the sampler sees of the data, with buffer and gap as coordinates need them."""
        request = self.request
        policy = self.sampler.estimator(request.windows, buffer)
        return policy.bind(request.model, request.sequences, constrain(request.model, u))

    def bind(self, target: Target) -> None:
        self.target = target
        self.run.buffer = None if target.buffer is None else target.buffer.length
        # Windows of a Dask array are fetched from here: a worker that asked others for rows could wait for itself.
        client = self.request.client if self.request.sequences.portable else None
        given = self.sampler, target, self.request.seed, self.limit
        self.driver = Driver(*given) if client is None else ClusterDriver(client, *given)

    @property
    def name(self) -> str:
        buffer = self.sampler.describe(self.target).get("buffer")
        return self.sampler.name if buffer is None else f"{self.sampler.name}, buffer {buffer}"

    def begin(self) -> RunState:
        """The state to draw from: the one that was kept, or a new one after a warm-up."""
        run = self.run
        if run.state is not None:
            run.state = run.state.copy()
            return run.state
        self.bar.phase(f"starting {self.name}", total=self.request.chains, unit="chains")
        state = self.driver.start(self.starts, adapt=run.packed is None, tick=self.bar.advance)
        if run.packed is not None:
            with self.driver.scope():
                record = self.sampler.record(jax.tree.map(jnp.asarray, state.states[0]))
            run.state, run.packed = state.like(run.packed, record), None
            return run.state
        state = self.warm_up(state)
        if state.stopped == CTRL_C:
            raise KeyboardInterrupt  # there is nothing to return yet
        if state.stopped:
            raise self.limit.over("warming up")
        run.state = state
        self.save()
        return state

    def warm_up(self, state: RunState) -> RunState:
        if self.sampler.retunes:
            return self.retuned(state)
        if self.target.buffer is None:
            return self.advance(state, self.warmup)
        for phase in range(PHASES):
            state = self.advance(state, self.warmup * (phase + 1) // PHASES - self.warmup * phase // PHASES)
            if state.stopped:
                break
            here = jax.tree.map(lambda each: np.asarray(each, np.float64), dict(state.states[0].coordinates))
            found = partial(self.target_at, here, self.request.buffer)
            self.bind(self.limit.run(found, "choosing the length of buffers"))
            self.run.bound_at = here
        return state

    def advance(self, state: RunState, draws: int, thin: int = 1, record: bool = False) -> RunState:
        tick = self.phase(f"warming up, {self.name}", draws, thin)
        return self.driver.advance(state, draws, thin, record=record, tick=tick)

    def phase(self, name: str, draws: int, thin: int) -> Tick:
        self.bar.phase(name, total=self.request.chains * draws * thin)
        return lambda steps: self.bar.advance(steps * self.request.chains)

    def retuned(self, state: RunState) -> RunState:
        for times in range(self.sampler.retunes + 1):
            seen = self.look(state)
            if seen is None or not self.sampler.unsettled(self.target, seen):
                break
            if times == self.sampler.retunes:
                self.run.notes = (*self.run.notes, MOVING)
                break
            again = partial(self.sampler.retune, self.target, seen)
            self.run.tuned = self.sampler = self.limit.run(again, "tuning the sampler anew")
            self.bind(self.target_at(self.starts[0], None))
            moved = self.driver.start([dict(each.coordinates) for each in state.states])
            state = RunState(moved.states, state.steps, alive=state.alive)
        return state

    def look(self, state: RunState) -> Any:
        """Warm up; what was recorded during its second half, None if it has none."""
        half = self.warmup // 2
        thin = max(1, half // LOOKS)
        looks = half // thin
        self.advance(state, self.warmup - looks * thin)
        if state.stopped is None and looks:
            self.advance(state, looks, thin, record=True)
        if state.stopped is not None or not looks:
            return None
        seen, state.recorded = state.joined()[0], []
        return seen

    def draw(self, state: RunState) -> None:
        """Draw as many as were asked for; where they are too much alike, further apart."""
        run, request = self.run, self.request
        while True:
            left = request.draws - state.draws
            tick = self.phase(self.name, left, run.thin)
            self.driver.advance(state, left, run.thin, tick=tick, after_block=partial(self.save, SAVE_EVERY))
            self.save()
            fixed = request.thin is not None or not request.spaced or run.rounds >= ROUNDS
            if fixed or state.stopped or not state.recorded:
                break
            flat = Flat.like(self.starts[0]).ravel_numpy(self.sampler.coordinates(state.joined()[0]))
            rows = request.sequences.length * np.sum(state.joined()[1].get("leapfrogs", 0))
            long = rows > LONG or (run.spare and 2 * run.thin * rows > spare_states.IN_VAIN)
            if long or bulk_effective_size(flat).min() >= WANTED_SHARE * request.chains * request.draws:
                break
            # Every second draw goes, and the rest is filled up with draws twice as far apart.
            state.recorded = [jax.tree.map(lambda each: each[:, 1::2], state.joined())]
            run.thin, run.rounds = 2 * run.thin, run.rounds + 1
        if not state.recorded:
            raise KeyboardInterrupt if state.stopped == CTRL_C else self.limit.over("drawing")

    def save(self, older: float = 0.0) -> None:
        """Write a checkpoint, if the last one is older than so many seconds."""
        if time.monotonic() - self.saved >= older:
            self.run.save()
            self.saved = time.monotonic()

    def chains(self, state: RunState) -> Chains:
        run, request, sampler = self.run, self.request, self.sampler
        alive = np.asarray(state.alive)
        record, stats = jax.tree.map(lambda each: each[alive], state.joined())
        settings = dict(sampler=sampler.name, chains=request.chains, draws=state.draws, warmup=self.warmup)
        settings |= dict(thin=run.thin, seed=request.seed, steps=state.steps, **sampler.describe(self.target))
        settings |= dict(request=request.settings(), versions=versions())
        if request.checkpoint is not None:
            settings["checkpoint"] = os.path.abspath(request.checkpoint)
        why = (f"the exact full-data sampler ({sampler.name}) was used: {run.why_exact}",) if run.why_exact else ()
        notes = (*why, *sampler.notes(), *run.notes, *notes_on(self.target, state, stats, request.draws))
        assert run.tuned is not None
        coordinates, information = run.tuned.mode() or (None, None)
        return Chains(sampler.coordinates(record), stats, settings, information, coordinates, notes)


def _starts(request: Request) -> list[Arrays]:
    """Coordinates at which chains begin: the user's, or guesses from the data, off the boundary of the simplex."""
    model, count = request.model, request.chains
    guesses: list[Any] = [request.init] * count
    if request.init is None:
        guesses = initial_params(model, request.sequences, restarts=count, seed=request.seed)
    return [unconstrain(model, lifted(model, params, 1e-8)) for params in map(model.validate, guesses)]


def versions() -> dict[str, str]:
    here = {"python": platform.python_version(), "backend": jax.devices()[0].platform, "longhmm": __version__}
    return here | {library.__name__: library.__version__ for library in (jax, jaxlib, numpyro, np)}
