"""Steps that are thrown away, and what is learnt from them: buffer, gap, and where the chains really are."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from longhmm.progress import Bar
from longhmm.run import recentring
from longhmm.run.cluster import driver_for
from longhmm.run.driver import Driver, Progressed
from longhmm.run.limit import Limit
from longhmm.run.preparation import Prepared, bind_matched, note_buffer
from longhmm.run.request import Request
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.target.control_variate import CountControl, count_control
from longhmm.target.coordinates import Flat, constrain

PHASES = 5  # of samplers on windows: buffer and gap are measured anew after each
LOOKS = 100  # states of every chain that are compared with the centre, at most


class WarmUp:
    """The warm-up of one run; `go` returns the states to draw from and the driver that draws."""

    def __init__(self, request: Request, prepared: Prepared, bar: Bar, limit: Limit) -> None:
        self.request, self.prepared, self.bar, self.limit = request, prepared, bar, limit

    def go(self, driver: Driver, run: Progressed) -> tuple[Progressed, Driver]:
        """Take the steps of the warm-up."""
        if self.request.sampler.name == ControlVariateSGLD.name:
            return self._about_a_centre(driver, run)
        if hasattr(self.prepared.estimator, "buffer"):
            return self._on_windows(driver, run)
        self._advance(driver, run, self.prepared.warmup)
        return run, driver

    def _advance(self, driver: Driver, run: Progressed, draws: int, thin: int = 1, record: bool = False) -> None:
        chains = self.request.chains
        self.bar.phase(f"warming up, {self.prepared.describe(self.request)}", total=chains * draws * thin)
        if draws:
            driver.advance(run, draws, thin, record=record, tick=lambda n: self.bar.advance(n * chains))

    def _on_windows(self, driver: Driver, run: Progressed) -> tuple[Progressed, Driver]:
        request, prepared = self.request, self.prepared
        for phase in range(PHASES):
            self._advance(driver, run, prepared.warmup * (phase + 1) // PHASES - prepared.warmup * phase // PHASES)
            if run.stopped is not None:
                break
            here = jax.tree.map(lambda each: np.asarray(each, np.float64), dict(run.states[0].coordinates))
            policy = request.sampler.estimator(request.windows, request.buffer)
            params = constrain(request.model, here)
            bind = partial(policy.bind, request.model, request.sequences, params)
            prepared.estimator = self.limit.run(bind, "choosing the length of buffers")
            prepared.arrays |= {f"bound_{name}": value for name, value in here.items()}
            note_buffer(prepared)
            driver = driver_for(request, prepared.estimator, driver.limit)
        return run, driver

    def _about_a_centre(self, driver: Driver, run: Progressed) -> tuple[Progressed, Driver]:
        """If the chains stay away from the centre of the control variates, it is moved to them, and they warm up anew.

        The gradient there is exact, so that this changes the noise and never the target.
        """
        request, prepared = self.request, self.prepared
        assert prepared.found is not None
        times = 0
        while True:
            offsets = self._look(driver, run)
            far = offsets is not None and recentring.drifted(offsets, request.model.n_states)
            if offsets is None or not far or times == recentring.MOST_TIMES:
                break
            times += 1
            centre = recentring.centre_of(prepared.found, offsets)
            slope, rare = self.limit.run(partial(_about, request, centre), "moving the centre of the control variates")
            bind_matched(prepared, recentring.recentred(prepared.found, centre, slope, rare))
            prepared.arrays |= recentring.to_arrays(centre, slope, rare)
            driver = driver_for(request, prepared.estimator, driver.limit)
            moved = driver.start([dict(state.coordinates) for state in run.states])
            run = Progressed(moved.states, run.steps, alive=run.alive)
        if times:
            prepared.settings["recentred"] = times
        if far:
            prepared.notes.append(
                "run longer: the chains were still moving away from the mode after the warm-up; start elsewhere (init) "
                "or use an exact sampler such as NUTS()"
            )
        return run, driver

    def _look(self, driver: Driver, run: Progressed) -> np.ndarray | None:
        """Warm up; whitened offsets `(chain, draw, P)` during its second half, None if it has none."""
        half = self.prepared.warmup // 2
        thin = max(1, half // LOOKS)
        looks = half // thin
        self._advance(driver, run, self.prepared.warmup - looks * thin)
        if run.stopped is None and looks:
            self._advance(driver, run, looks, thin, record=True)
        if run.stopped is not None or not looks:
            return None
        seen = np.asarray(run.draws_tree(), np.float64)
        run.recorded, run.stats = [], []
        return seen


def _about(request: Request, centre: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], CountControl]:
    """What control variates need to know of another centre: three passes over the data."""
    slope = recentring.exact_slope(request.model, centre, request.sequences)
    return slope, count_control(request.model, constrain(request.model, centre), request.sequences)


def flat_of(prepared: Prepared, tree: Any) -> np.ndarray:
    """Recorded draws as flat coordinates `(chain, draw, P)`."""
    return Flat.like(prepared.starts[0]).ravel_numpy(prepared.expand(tree))
