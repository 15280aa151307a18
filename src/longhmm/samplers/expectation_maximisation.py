"""Expectation maximisation: the nearest mode of the posterior (or of the likelihood), for any emission.

Every step is one pass over all data. For exponential families the M step is exact; otherwise it is one Newton step on
Q (Lange 1995, the "EM gradient" algorithm), which has the same fixed points and the same rate near them.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from longhmm.backends.stream import Progress, Totals
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError, ModelError, check_whole
from longhmm.model.hmm import HMM
from longhmm.model.initialise import in_rising_order, initial_params
from longhmm.model.parameters import Params
from longhmm.model.summary import subsample_data
from longhmm.progress import Bar
from longhmm.samplers import SAMPLERS
from longhmm.samplers.contract import Coordinates, Info, Sampler
from longhmm.samplers.em_steps import SMALLEST, between, expect, maximise, sums_suffice
from longhmm.target.buffered import FullData
from longhmm.target.coordinates import Arrays, constrain, lifted, log_prior, unconstrain
from longhmm.target.target import Estimator, Target

HALVINGS = 30
TRIAL_ITERATIONS = 15  # what every start gets on the subsample before the best is chosen
# Passes agree to rounding only: a fall of the log posterior by less than this share of it is none.
ROUNDING = 1e-12
LEAST = 1e-12  # transitions below this have no coordinates worth the name


class EMState(NamedTuple):
    """Parameters with what one pass found at them."""

    coordinates: Arrays  # transitions of probability zero are lifted to `LEAST`
    params: Arrays  # `initial` only where it was given and differs from the model's own
    expected: Totals
    log_posterior: float  # with the log prior density of natural parameters, if there is a prior
    by_sums: bool  # whether sufficient statistics are used


@SAMPLERS.register("em", offered=False)
@dataclass(frozen=True)
class ExpectationMaximisation(Sampler):
    """EM under the contract of all samplers: a step is one iteration, and the random key is not used.

        theta' = argmax Q(theta | theta_now), halved towards theta_now until the log posterior does not fall

    All draws of a chain that has converged are the same point, the mode of the density of natural parameters.

    Args:
        prior: maximise the posterior density of natural parameters; False maximises the likelihood.
        progress: called with the number of rows after every block.

    Example:
        >>> import longhmm as lh
        >>> lh.samplers.ExpectationMaximisation(prior=False).name
        'EM'

    Reference: Dempster, Laird and Rubin (1977); Lange (1995) for the Newton step. Differs from Baum-Welch by the
    prior, and by the halving.
    """

    prior: bool = True
    progress: Progress | None = None
    name: ClassVar[str] = "EM"
    cites: ClassVar[tuple[str, ...]] = ("dempster1977",)
    x64: ClassVar[bool] = True
    sees: ClassVar[Estimator] = FullData()
    varying: ClassVar[bool] = False

    def init(self, target: Target, key: Any, u: Coordinates) -> EMState:
        self.check(target.model)
        given = {} if target.initial is None else {"initial": target.initial}
        return self.at({**constrain(target.model, u), **given}, target)

    def at(self, params: Params, target: Target) -> EMState:
        """Run the first pass at given natural parameters."""
        complete = target.model.validate(params)
        if target.model.given_initial(complete) is None:
            del complete["initial"]
        return self._at(complete, target, sums_suffice(target))

    def step(self, target: Target, key: Any, state: EMState, minibatch: None = None) -> tuple[EMState, Info]:
        model = target.model
        given = {name: value for name, value in state.params.items() if name == "initial"}
        moves_initial = isinstance(model.initial, str) and not given
        at = state.params, state.coordinates, state.expected
        proposal = maximise(model, *at, prior=self.prior, moves_initial=moves_initial)
        least = state.log_posterior - ROUNDING * max(1.0, abs(state.log_posterior))
        for halvings in range(HALVINGS):
            try:
                params = {**between(model, state.params, proposal, 0.5**halvings), **given}
                new = self._at(params, target, state.by_sums)
            except (ModelError, ImpossibleObservationError):
                continue  # the step left the region in which the data are possible
            if new.log_posterior >= least:
                return new, _report(new, new.log_posterior - state.log_posterior, halvings)
        return state, _report(state, 0.0, HALVINGS)

    def _at(self, params: Arrays, data: Target, by_sums: bool) -> EMState:
        expected = expect(data, params, by_sums=by_sums, progress=self.progress)
        prior = log_prior(data.model, lifted(data.model, params, SMALLEST), unconstrained=False) if self.prior else 0.0
        coordinates = unconstrain(data.model, lifted(data.model, params, LEAST))
        return EMState(coordinates, params, expected, expected.log_likelihood + prior, by_sums)


def _report(state: EMState, gain: float, halvings: int) -> Info:
    """What a step achieved: the values after it, the gain, and how often the step was halved."""
    nothing: Any = {name: np.zeros_like(value) for name, value in state.coordinates.items()}
    stats = {"log_likelihood": state.expected.log_likelihood, "log_posterior": state.log_posterior}
    return Info(nothing, np.isfinite(state.log_posterior), {**stats, "gain": gain, "halvings": halvings})


class EMFit(NamedTuple):
    """Where expectation maximisation ended.

    `log_posterior` `(n_iterations + 1,)` is the log likelihood plus the log prior density of natural parameters, if
    there is a prior, at the start and after every iteration on all data; it never falls.
    """

    params: Arrays  # natural parameters, complete
    log_likelihood: float
    log_posterior: np.ndarray
    n_iterations: int
    converged: bool  # whether it stopped because nothing was left to gain


def fit_em(
    model: HMM,
    data: Any,
    *,
    restarts: int = 4,
    max_iterations: int = 200,
    tolerance: float = 1e-3,
    seed: int = 0,
    prior: bool = True,
    init: Params | None = None,
    progress: bool = True,
) -> EMFit:
    """Find a mode of the posterior density of natural parameters, or of the likelihood, by full passes.

    Several starts run a few iterations on a subsample of stretches; the best goes on with all data.

    Args:
        model: the hidden Markov model; default priors are scaled to the data.
        data: an array `(T,)` or `(T, D)`, a path, a list of these (many sequences), or what `open_data` returned.
        restarts: number of starts.
        max_iterations: most iterations on all data.
        tolerance: stop once less than this is left to gain in log posterior, by extrapolating the last two gains.
            One unit separates the mode from a point 1.4 posterior standard deviations away, whatever the length of the
            data, so the criterion asks for the same care at every length.
        seed: equal seeds give equal fits.
        prior: False fits by maximum likelihood, whose maximum may be infinite (a state that owns a single value).
        init: natural parameters to start from instead of searching for a start.
        progress: show a bar once the fit has taken two seconds.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> fit = lh.fit_em(model, [0, 1, 0, 9, 8, 9, 1, 0] * 50)
        >>> fit.params["rate"].round(1).tolist()
        [0.4, 8.6]
    """
    check_whole("max_iterations", max_iterations, 0)
    check_whole("restarts", restarts, 1)
    ExpectationMaximisation().check(model)
    model, sequences = model.meet(data)
    resolved = model.resolve(sequences)
    start = init if init is not None else _best_start(resolved, sequences, restarts, seed, prior)
    with Bar(progress) as bar:
        bar.phase("EM", total=sequences.length, unit="rows")
        em = ExpectationMaximisation(prior=prior, progress=bar.advance)
        target, state = _started(em, resolved, sequences, start)
        trace, converged = [state.log_posterior], False
        while not converged and len(trace) <= max_iterations:
            state, _ = em.step(target, None, state)
            trace.append(state.log_posterior)
            text = f"EM iteration {len(trace) - 1}, log posterior {state.log_posterior:,.1f}"
            bar.phase(text, total=sequences.length, unit="rows")
            converged = left_to_gain(trace) < max(tolerance, 1e-11 * abs(trace[-1]))
    complete = resolved.validate(state.params)
    params = complete if init is not None or sequences.has_states else in_rising_order(resolved, complete)
    return EMFit(params, state.expected.log_likelihood, np.array(trace), len(trace) - 1, converged)


def left_to_gain(trace: list[float]) -> float:
    """What a sequence that gains geometrically still has before it, from its last two gains."""
    gain = max(trace[-1] - trace[-2], 0.0)
    if gain == 0.0 or len(trace) < 3:
        return gain if gain == 0.0 else np.inf
    rate = min(gain / max(trace[-2] - trace[-3], gain), 0.999)
    return gain * max(rate / (1.0 - rate), 1.0)


def _started(em: ExpectationMaximisation, model: HMM, sequences: Sequences, params: Any) -> tuple[Target, EMState]:
    """The data as EM sees them, and its state after a first pass at `params`."""
    target, complete = FullData().bind(model, sequences, params), model.validate(params)
    return target, em.init(target, None, unconstrain(model, lifted(model, complete, LEAST)))


def _best_start(model: HMM, sequences: Sequences, restarts: int, seed: int, prior: bool) -> Arrays:
    """The start that gets furthest on the subsample."""
    starts = initial_params(model, sequences, restarts=restarts, seed=seed)
    if restarts == 1:
        return starts[0]
    part = subsample_data(sequences)
    trial = sequences if part.length == sequences.length else part
    em, best = ExpectationMaximisation(prior=prior), None
    for start in starts:
        try:
            target, state = _started(em, model, trial, start)
        except ImpossibleObservationError:
            continue
        for _ in range(TRIAL_ITERATIONS):
            state, _ = em.step(target, None, state)
        if best is None or state.log_posterior > best.log_posterior:
            best = state
    return starts[0] if best is None else best.params
