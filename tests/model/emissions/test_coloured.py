"""Levels seen through correlated noise and a filter: exact sums over paths, published answers, draws, and the K states
to which everything maps back."""

import itertools
import json
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.cli.options import build_model
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.memory import unfold
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.posterior.diagnostics.observations import residuals
from longhmm.posterior.relabel import match_states, permute
from recordings import RECORDINGS

RGNP = RECORDINGS / "regression" / "rgnp.csv"
MOVES = np.array([[0.9, 0.1], [0.2, 0.8]])
AR2 = lh.Gaussian(noise=lh.ARNoise(2))
MA1 = lh.Gaussian(noise=lh.MANoise(1, lags=3, latest=False))
FILTER = lh.Gaussian(response=lh.StepResponse([0.3, 0.8, 1.0]))
ESTIMATED = lh.Gaussian(noise=lh.MANoise(1, lags=2), response=lh.StepResponse(2))
BOTH = lh.Gaussian(noise=lh.ARNoise(1, common=True), response=lh.StepResponse([0.6, 1.0]))
LEVELS = {"transition": MOVES, "mean": np.array([10.0, 13.0]), "sd": np.array([1.0, 0.6])}
CASES: list[tuple[Any, dict[str, Any]]] = [
    (AR2, {**LEVELS, "phi": np.array([0.6, -0.3])}),
    (MA1, {**LEVELS, "theta": np.array([0.5])}),
    (FILTER, LEVELS),
    (BOTH, {**LEVELS, "sd": np.array([0.8]), "phi": np.array([0.5])}),
    (ESTIMATED, {**LEVELS, "theta": np.array([0.4]), "rise": np.array([0.3, 0.8])}),
]
NAMES = ["ar", "ma", "filter", "both", "estimated"]
EVERY = pytest.mark.parametrize(("emission", "params"), CASES, ids=NAMES)
# An autoregression and a filter alone are parts of both together.
MOSTLY_SLOW = pytest.mark.parametrize(
    ("emission", "params"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case[0] in (AR2, FILTER))) for case in CASES],
    ids=NAMES,
)


def ragged(model: lh.HMM, params: Any, lengths: list[int], seed: int = 1) -> list[np.ndarray]:
    sequences = [np.array(each, np.float64) for each in lh.simulate(model, params, lengths, seed=seed)[1]]
    for each in sequences:
        each[len(each) // 2] = np.nan
    return sequences


def by_enumeration(emission: Any, params: Any, sequence: np.ndarray) -> tuple[float, np.ndarray]:
    """Log likelihood and state probabilities from all paths, straight from the definition."""
    y, n = sequence[:, 0], len(sequence)
    shown = np.append(params["rise"], 1.0) if "rise" in params else emission.response
    steps, phi = np.diff(shown, prepend=0.0), np.asarray(emission.weights(params))
    sd = np.broadcast_to(params["sd"], 2)
    paths = np.array(list(itertools.product(range(2), repeat=n)))
    logs = np.log(0.5) + np.log(params["transition"])[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    before = np.repeat(paths[:, :1], len(steps) - 1, axis=1)  # a sequence was in its first state before it
    held = params["mean"][np.concatenate([before, paths], axis=1)]
    shown = sum(step * held[:, len(steps) - 1 - lag : len(steps) - 1 - lag + n] for lag, step in enumerate(steps))
    for t in range(len(phi), n):
        if not np.isnan(y[t - len(phi) : t + 1]).any():
            mean = shown[:, t] + sum(phi[lag] * (y[t - 1 - lag] - shown[:, t - 1 - lag]) for lag in range(len(phi)))
            logs = logs + stats.norm.logpdf(y[t], mean, sd[paths[:, t]])
    total = np.logaddexp.reduce(logs)
    weights = np.exp(logs - total)
    return float(total), np.stack([weights @ (paths == state) for state in range(2)], axis=1)


@EVERY
def test_likelihood_and_probabilities_are_sums_over_all_paths(emission: Any, params: Any) -> None:
    model = lh.HMM(2, emission)
    sequences = ragged(model, params, [11, 1, 4, 9])
    with jax.enable_x64(True):
        found = [by_enumeration(emission, params, each) for each in sequences]
    assert lh.log_likelihood(model, params, sequences) == pytest.approx(sum(one for one, _ in found), rel=1e-7)
    expected = np.concatenate([probabilities for _, probabilities in found])
    np.testing.assert_allclose(lh.state_probabilities(model, params, sequences), expected, atol=2e-6)


@EVERY
def test_known_states_are_those_without_memory(emission: Any, params: Any) -> None:
    model, values = lh.HMM(2, emission), ragged(lh.HMM(2, emission), params, [7])[0]
    every = list(itertools.product((0, 1), repeat=7))
    logs = [lh.log_likelihood(model, params, open_data(values, states=np.array(path))) for path in every]
    assert np.logaddexp.reduce(logs) == pytest.approx(lh.log_likelihood(model, params, values), rel=1e-9)


@MOSTLY_SLOW
@pytest.mark.slow
def test_states_that_remember_are_a_coherent_model(emission: Any, params: Any) -> None:
    model = lh.HMM(2, emission).resolve(np.linspace(8, 15, 50))
    _, inner, wide = unfold(model, model.validate(params))
    values = ragged(lh.HMM(2, emission), params, [14])[0]
    lh.testing.check_coherence(inner, wide, values)
    assert inner.memory is None and wide["transition"].shape == (inner.n_states,) * 2


@MOSTLY_SLOW
def test_slopes_are_those_of_the_likelihood(emission: Any, params: Any) -> None:
    data = open_data(ragged(lh.HMM(2, emission), params, [200, 2, 90]))
    model = lh.HMM(2, emission).resolve(data)
    found, at = lh.gradient(model, params, data, prior=False), lh.unconstrain(model, params)
    for name, slopes in found.items():
        for place in np.ndindex(np.shape(slopes)):
            step = np.zeros(np.shape(slopes))
            step[place] = 1e-5
            ends = [lh.constrain(model, {**at, name: at[name] + sign * step}) for sign in (1, -1)]
            one, other = (lh.log_likelihood(model, end, data) for end in ends)
            assert slopes[place] == pytest.approx((one - other) / 2e-5, rel=1e-4, abs=1e-3), (name, place)
    estimator = lh.Buffered(windows=lh.Windows(half_width=3, count=43), buffer=lh.FixedBuffer(200))
    windows = lh.gradient(model, params, data, prior=False, estimator=estimator)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=5e-3, atol=0.2), windows, found)


def test_forgetting_early_changes_hardly_matters_where_states_last() -> None:
    params = {**LEVELS, "transition": [[0.99, 0.01], [0.02, 0.98]], "phi": np.array([0.6, -0.3])}
    values = lh.simulate(lh.HMM(2, AR2), params, 3000, seed=2)[1]
    exact = lh.log_likelihood(lh.HMM(2, AR2), params, values)
    pruned = lh.HMM(2, lh.Gaussian(noise=lh.ARNoise(2, latest=True)))
    assert abs(lh.log_likelihood(pruned, params, values) - exact) < 0.5
    memory = pruned.memory
    assert memory is not None and memory.forgotten(np.asarray(params["transition"])) == pytest.approx(2.6e-4, rel=0.5)


@pytest.mark.skipif(not RGNP.exists(), reason="the data are not at hand")
def test_hamiltons_model_of_growth() -> None:
    """As published: an autoregression of order 4 about a switching mean."""
    growth = np.genfromtxt(RGNP, delimiter=",", skip_header=1)
    real, positive = (dist.ImproperUniform(each, (), ()) for each in (dist.constraints.real, dist.constraints.positive))
    noise = lh.ARNoise(4, common=True, weights=real)
    model = lh.HMM(2, lh.Gaussian(noise=noise, mean=real, sd=positive), initial="stationary")
    params = {
        "transition": np.array([[0.754673, 0.245327], [0.095915, 0.904085]]),
        "mean": np.array([-0.358811, 1.163516]),
        "sd": np.array([np.exp(-0.262658)]),
        "phi": np.array([0.013486, -0.057521, -0.246983, -0.212923]),
    }
    assert lh.log_likelihood(model, params, growth) == pytest.approx(-181.26339, abs=1e-4)
    for slope in lh.gradient(model, params, growth, prior=False).values():
        assert np.abs(slope).max() < 1e-3  # it is the maximum
    fit = lh.fit_em(model, growth, tolerance=1e-10, max_iterations=3000)
    assert fit.log_likelihood == pytest.approx(-181.26339, abs=0.01)
    for name, value in params.items():
        np.testing.assert_allclose(fit.params[name], value, rtol=0.01, atol=5e-4)


@pytest.mark.slow
def test_samplers_agree_and_answers_are_those_of_two_states(tmp_path: Any) -> None:
    params = {**LEVELS, "transition": [[0.97, 0.03], [0.05, 0.95]], "phi": np.array([0.6, -0.3])}
    model = lh.HMM(2, AR2)
    states, values = lh.simulate(model, params, 3000, seed=3)
    values[700] = np.nan
    posterior = lh.sample(model, values, sampler=lh.ControlVariateSGLD(), draws=150, chains=2, seed=1, progress=False)
    nuts = lh.sample(model, values, sampler=lh.NUTS(), draws=80, chains=1, seed=1, progress=False, verdict=False)
    for name in ("phi", "sd", "mean", "transition"):
        ours, exact, truth = posterior.draws[name], nuts.draws[name], np.asarray(params[name])
        sd = exact.std(("chain", "draw")).values
        assert np.all(np.abs(ours.mean(("chain", "draw")).values - exact.mean(("chain", "draw")).values) < 0.6 * sd)
        assert np.all(np.abs(exact.mean(("chain", "draw")).values - truth) < 4.5 * sd)
    assert posterior.draws["phi"].dims == ("chain", "draw", "lag")
    assert np.mean(posterior.decode(values) == states) > 0.93
    assert posterior.state_probabilities(values, draws=2).shape == (3000, 2)
    assert set(posterior.events(values)["state"]) <= {0, 1}
    left = residuals(posterior.model, next(posterior.iterate(1)), open_data(values))
    assert left is not None and abs(left.autocorrelation[0]) < 0.06 and left.distance_p_value[0] > 1e-3
    ahead = posterior.forecast(values, 100, draws=5, paths=200)
    assert ahead.state_probabilities.shape == (100, 2)
    np.testing.assert_allclose(ahead.state_probabilities.sum(axis=1), 1.0)
    whole = posterior.score(values, draws=2).log_density
    assert np.isfinite(whole) and np.isfinite(posterior.score(values[1500:], draws=2, after=values[:1500]).log_density)
    posterior.save(tmp_path / "run")
    again = lh.load(tmp_path / "run")
    assert repr(again.model) == "HMM(n_states=2, emission=Gaussian(noise=ARNoise(2)))"
    np.testing.assert_array_equal(again.draws["phi"], posterior.draws["phi"])
    with pytest.raises(ModelError, match="depends on the one before"):
        lh.sample(model, values, sampler=lh.Gibbs(), draws=5, progress=False)


def test_what_all_states_share_keeps_its_place_when_states_are_renumbered() -> None:
    model, params = lh.HMM(2, BOTH), CASES[3][1]
    moved = permute(model, params, [1, 0])
    assert moved["mean"].tolist() == [13.0, 10.0] and moved["sd"] is params["sd"] and moved["phi"] is params["phi"]
    assert match_states(model, params, moved, otherwise=np.arange(2)).tolist() == [1, 0]
    assert match_states(model, params, params, otherwise=np.arange(2)).tolist() == [0, 1]


def test_it_is_stored_and_rebuilt() -> None:
    for emission, params in CASES:
        model = lh.HMM(2, emission).resolve(ragged(lh.HMM(2, emission), params, [100]))
        config = json.loads(json.dumps(model_to_config(model)))
        again = model_from_config(config)
        assert model_to_config(again) == config and repr(again) == repr(model)
        assert jax.tree.structure(again.emission) == jax.tree.structure(model.emission)


def test_what_does_not_fit_is_refused() -> None:
    for wrong, said in (
        (lambda: lh.Gaussian(noise=3), "noise must be ARNoise"),
        (lambda: lh.Gaussian(2, noise=lh.ARNoise(1)), "has one feature"),
        (lambda: lh.Gaussian(noise=lh.ARNoise(1), variance=1.0), "has one feature"),
        (lambda: lh.ARNoise(0), "order must be a whole number of at least 1"),
        (lambda: lh.StepResponse("box", cutoff=0.1), "gaussian, bessel"),
        (lambda: lh.StepResponse("bessel"), "cutoff between 0 and 0.5"),
        (lambda: lh.StepResponse([0.2, 0.5]), "end in 1"),
        (lambda: lh.StepResponse(0), "at least 1"),
        (lambda: lh.StepResponse([0.5, 1.0], rise=0.5), "rise must be left out"),
    ):
        with pytest.raises(ModelError, match=said):
            wrong()


def test_the_command_line_names_the_noise(tmp_path: Any) -> None:
    np.save(tmp_path / "y.npy", np.linspace(0.3, 9.0, 50))
    given = {"noise": "ar:2,common", "response": "0.9,1"}
    found = build_model("gaussian", 2, open_data(tmp_path / "y.npy"), priors=[], stay=None, **given).emission
    assert found.order == 2 and found.common and np.allclose(found.response, [0.9, 1.0])
    assert np.array_equal(lh.StepResponse("bessel:0.1").values, lh.StepResponse("bessel", cutoff=0.1).values)
    assert (
        build_model("gaussian", 2, open_data(tmp_path / "y.npy"), priors=[], stay=None, response="2").emission.samples
        == 2
    )
    for option, said in (("--noise pink", "ar:2"), ("--noise ar:2,lags=3", "ar:2"), ("--response 0.1,x", "end in 1")):
        wrong = CliRunner().invoke(app, f"fit {tmp_path}/y.npy --states 2 {option}".split())
        assert wrong.exit_code != 0 and said in wrong.output and "Traceback" not in wrong.output


@pytest.mark.slow
def test_the_command_line_fits_the_noise(tmp_path: Any) -> None:
    params = {**LEVELS, "phi": np.array([0.6, -0.3])}
    np.save(tmp_path / "y.npy", lh.simulate(lh.HMM(2, AR2), params, 1500, seed=2)[1])
    command = f"fit {tmp_path}/y.npy --states 2 --noise ar:2,common --response 0.9,1 --draws 20 --out {tmp_path}/run"
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    again = lh.load(tmp_path / "run")
    assert again.draws["phi"].shape[-1] == 2 and again.draws["sd"].shape[-1] == 1
    assert np.allclose(again.model.emission.response, [0.9, 1.0])
