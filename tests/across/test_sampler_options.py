"""Every public sampler with every value of every option, through `lh.sample`, for a few steps."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.samplers import SAMPLERS
from longhmm.samplers.langevin_moves import GaussianMetric, Preconditioned
from longhmm.samplers.preconditioning import Given, Identity, InverseInformation
from longhmm.samplers.sgrld import Alternating, Joint

COUNT = itertools.count()
PARAMS = {
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "mean": [[0.0, 0.0], [4.0, 2.0]],
    "covariance": [[[1.0, 0.2], [0.2, 1.0]], [[2.0, 0.0], [0.0, 1.0]]],
}
COORDINATES = 12
MASS = 0.01 * np.eye(COORDINATES)
STEPS = (lh.samplers.Constant(1e-3), lh.samplers.PolynomialDecay(1e-3))
ROWS, EMISSIONS = (lh.samplers.Mirror(), lh.samplers.CoxIngersollRoss()), (Preconditioned(), GaussianMetric())
PRECONDITIONERS = (Identity(), InverseInformation(), Given(MASS), Given(np.full(COORDINATES, 0.01)))

# What each sampler is run with beside the option that is tried: steps that suit short data, and no long adaptation.
USUAL = {
    "SGLD": {"step_size": 1e-4},
    "SGHMC": {"step_size": 1e-3},
    "SGRLD": {"step_size": 1e-3},
    "BatchRLD": {"step_size": 1e-3},
    "NUTS": {"max_tree_depth": 3, "adaptation_steps": 20},
    "HMC": {"leapfrogs": 2, "adaptation_steps": 20},
    "Gibbs": {"adaptation_steps": 2},
}
OPTIONS = {
    "ControlVariateSGLD": {"largest_step": (0.1,), "noise_share": (0.1,)},
    "SGLD": {"step_size": STEPS, "preconditioner": PRECONDITIONERS, "noise_correction": (True,)},
    "SGHMC": {
        "step_size": STEPS,
        "friction": (0.5,),
        "preconditioner": PRECONDITIONERS,
        "noise_correction": (True,),
    },
    "SGRLD": {
        "step_size": STEPS,
        "transitions": ROWS,
        "emission": EMISSIONS,
        "blocks": (Joint(), Alternating(2)),
        "noise_correction": (True,),
        "per_observation": (True,),
        "start": (lh.estimators.stationary_start, lh.estimators.uniform_start),
    },
    "BatchRLD": {"step_size": STEPS, "transitions": ROWS, "emission": EMISSIONS, "per_observation": (True,)},
    "NUTS": {
        "target_acceptance": (0.9,),
        "inverse_mass": (MASS,),
        "step_size": (0.1,),
        "max_tree_depth": (2,),
        "adaptation_steps": (25,),
    },
    "HMC": {
        "step_size": (0.1,),
        "leapfrogs": (3,),
        "inverse_mass": (MASS,),
        "target_acceptance": (0.9,),
        "adaptation_steps": (25,),
    },
    "Gibbs": {"adaptation_steps": (3,)},
    "StochasticVariational": {"forgetting": (0.7,), "delay": (2.0,)},
}


@pytest.fixture(autouse=True)
def forget_programs():
    """There are more programs in this file than a process may hold."""
    yield
    if next(COUNT) % 20 == 19:
        jax.clear_caches()


@pytest.fixture(scope="module")
def problem():
    model = lh.HMM(2, lh.Gaussian(dim=2))
    y = lh.simulate(model, PARAMS, 400, seed=0)[1]
    return model.resolve(y), y


def run(problem, sampler, **options):
    model, y = problem
    few = {"chains": 2, "draws": 3, "warmup": 3, "thin": 1, "init": PARAMS, "progress": False}
    posterior = lh.sample(model, y, sampler=sampler, **{**few, **options})
    assert posterior.n_draws == 3 and posterior.n_chains == 2
    for name, value in posterior.draws.items():
        drawn = np.asarray(value)
        assert np.isfinite(drawn).all(), name
        assert np.abs(drawn - np.asarray(PARAMS[name])).max() > 0, f"{name} never moved"


def label(value):
    return str(value).split(" at 0x")[0][:40].replace("\n", " ")


TUNED = ("ControlVariateSGLD", "NUTS", "HMC")  # whose numbers take a while to try, and are tried elsewhere as well
ONE_BY_ONE = [
    pytest.param(name, {option: value}, id=f"{name}-{option}-{label(value)}")
    for name, options in OPTIONS.items()
    for option, values in options.items()
    for value in values
]


def side_by_side(name):
    """Few runs that try every value: the first of all options together, then the second, and so on."""
    columns = [[(option, value) for value in values] for option, values in OPTIONS[name].items()]
    return [dict(filter(None, values)) for values in itertools.zip_longest(*columns)]


FEW_RUNS = [
    pytest.param(name, options, id=f"{name}-{number}", marks=[pytest.mark.slow] if number else [])
    for name in OPTIONS
    if name not in TUNED
    for number, options in enumerate(side_by_side(name))
]


def test_no_sampler_and_no_option_is_left_out():
    # Other tests register some.
    own = {name for name, module in SAMPLERS.modules().items() if module.startswith("longhmm.")}
    assert set(OPTIONS) == own - {"ExpectationMaximisation"}  # which `fit_em` runs, and not `sample`
    for name, options in OPTIONS.items():
        sampler = getattr(lh.samplers, name)
        # What tuning finds is no option.
        assert set(options) == {each.name for each in dataclasses.fields(sampler)} - {"tuned"}


def test_few_runs_try_every_value():
    for name, options in OPTIONS.items():
        tried = [pair for each in side_by_side(name) for pair in each.items()]
        assert len(tried) == sum(map(len, options.values()))
        for option, values in options.items():
            assert [value for other, value in tried if other == option] == list(values)


@pytest.mark.parametrize(("name", "options"), FEW_RUNS)
def test_every_option_runs(problem, name, options):
    run(problem, getattr(lh.samplers, name)(**{**USUAL.get(name, {}), **options}))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), ONE_BY_ONE)
def test_every_option_runs_alone(problem, name, options):
    run(problem, getattr(lh.samplers, name)(**{**USUAL.get(name, {}), **options}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SGLD", "SGHMC", "SGRLD", "ControlVariateSGLD"])
@pytest.mark.parametrize(
    "options",
    [
        {"windows": lh.Windows(5, 8)},
        {"windows": lh.Windows(5, 8, lh.Importance())},
        {"buffer": lh.FixedBuffer(4)},
        {"buffer": lh.LyapunovBuffer(tolerance=1e-2)},
    ],
    ids=str,
)
def test_every_kind_of_window_and_buffer_runs(problem, name, options):
    run(problem, getattr(lh.samplers, name)(**USUAL.get(name, {})), **options)


def combinations(name, *chosen):
    """All values of some options together; the rest as usual."""
    columns = [OPTIONS[name][option] + ((False,) if option in SWITCHES else ()) for option in chosen]
    return [
        pytest.param(name, dict(zip(chosen, values, strict=True)), id=f"{name}-{'-'.join(map(label, values))}")
        for values in itertools.product(*columns)
    ]


SWITCHES = {"noise_correction", "per_observation"}
TOGETHER = (
    combinations("SGLD", "preconditioner", "noise_correction")
    + combinations("SGHMC", "preconditioner", "noise_correction")
    + combinations("SGRLD", "transitions", "emission", "blocks", "noise_correction", "per_observation", "start")
    + combinations("BatchRLD", "transitions", "emission", "per_observation")
    + combinations("NUTS", "inverse_mass", "step_size")
    + combinations("HMC", "inverse_mass", "step_size")
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), TOGETHER)
def test_every_combination_runs_or_is_refused_in_a_sentence(problem, name, options):
    try:
        sampler = getattr(lh.samplers, name)(**{**USUAL.get(name, {}), **options})
    except ModelError as refusal:
        assert options["noise_correction"] and str(refusal).endswith(".")
        return
    run(problem, sampler)
