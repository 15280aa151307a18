"""A slow baseline: sums over all paths, differences, SciPy's splines, held-out rows, storage, and what is found."""

import itertools
import json
import pickle
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.errors import ModelError
from longhmm.model.serialise import model_from_config, model_to_config
from model.baselines import baseline, wandering

MOVES = np.array([[0.9, 0.1], [0.2, 0.8]])
LEVELS = {"transition": MOVES, "mean": np.array([10.0, 13.0]), "sd": np.array([1.0, 0.6])}
KNOTS, LENGTHS = 4, [9, 1, 4, 6]
ROWS = sum(LENGTHS)
WHITE = lh.Gaussian(drift=lh.Drift(KNOTS, rows=ROWS))
COLOURED = lh.Gaussian(
    noise=lh.MANoise(1, lags=2, latest=False), response=lh.StepResponse([0.6, 1.0]), drift=lh.Drift(KNOTS, rows=ROWS)
)
LOUDER = lh.Gaussian(noise=lh.MANoise(1, lags=2, latest=False), response=lh.StepResponse([0.6, 1.0]))
LOUDER = lh.Drifting(LOUDER, lh.Drift(KNOTS, rows=ROWS, gain=True, about=11.0))
CASES: list[tuple[Any, dict[str, Any]]] = [
    (WHITE, LEVELS),
    (COLOURED, {**LEVELS, "theta": np.array([0.5])}),
    (lh.Gaussian(drift=lh.Drift(KNOTS, rows=ROWS, gain=True, about=2.0)), {**LEVELS, "gain": wandering(KNOTS, 0.3, 5)}),
    (LOUDER, {**LEVELS, "theta": np.array([0.5]), "gain": wandering(KNOTS, 0.3, 5)}),
]
NONE = np.zeros(KNOTS + 3)
QUIET = lh.Gaussian(drift=lh.Drift(KNOTS, rows=9, gain=True))
EVERY = pytest.mark.parametrize(("emission", "params"), CASES, ids=["white", "coloured", "gain", "coloured gain"])


def ragged(model: lh.HMM, params: Any) -> list[np.ndarray]:
    sequences = [np.array(each, np.float64) for each in lh.simulate(model, params, LENGTHS, seed=1)[1]]
    for each in sequences:
        each[len(each) // 2] = np.nan
    return sequences


def by_enumeration(
    params: Any, about: float, sequence: np.ndarray, away: np.ndarray, gain: np.ndarray
) -> tuple[float, np.ndarray]:
    """Log likelihood and state probabilities from all paths, straight from the definition."""
    y, n = sequence[:, 0], len(sequence)
    coloured = "theta" in params
    phi = np.array([params["theta"][0], -(params["theta"][0] ** 2)]) if coloured else np.zeros(0)
    steps = [0.6, 0.4] if coloured else [1.0]
    paths = np.array(list(itertools.product(range(2), repeat=n)))
    logs = np.log(0.5) + np.log(MOVES)[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    before = np.repeat(paths[:, :1], len(steps) - 1, axis=1)
    held = params["mean"][np.concatenate([before, paths], axis=1)]
    shown = sum(step * held[:, len(steps) - 1 - lag : len(steps) - 1 - lag + n] for lag, step in enumerate(steps))
    for t in range(len(phi), n):
        if not np.isnan(y[t - len(phi) : t + 1]).any():
            base = away[t] + about
            before = [about + (y[t - 1 - lag] - base) / gain[t] - shown[:, t - 1 - lag] for lag in range(len(phi))]
            still = shown[:, t] + sum(weight * each for weight, each in zip(phi, before, strict=True))
            mean = base + gain[t] * (still - about)
            logs = logs + stats.norm.logpdf(y[t], mean, gain[t] * params["sd"][paths[:, t]])
    total = np.logaddexp.reduce(logs)
    weights = np.exp(logs - total)
    return float(total), np.stack([weights @ (paths == state) for state in range(2)], axis=1)


@EVERY
def test_likelihood_and_probabilities_are_sums_over_all_paths(emission: Any, params: Any) -> None:
    model, params = lh.HMM(2, emission), {**params, "drift": wandering(KNOTS)}
    sequences, ends = ragged(model, params), np.cumsum([0, *LENGTHS])
    rows = [np.arange(*span) for span in itertools.pairwise(ends)]
    away = [baseline(params["drift"], ROWS, each) for each in rows]
    gain = [np.exp(baseline(params.get("gain", np.zeros(KNOTS + 3)), ROWS, each)) for each in rows]
    about = 0.0 if emission.drift.gain is None else emission.drift.about[0]
    found = [by_enumeration(params, about, *each) for each in zip(sequences, away, gain, strict=True)]
    assert lh.log_likelihood(model, params, sequences) == pytest.approx(sum(one for one, _ in found), rel=1e-7)
    expected = np.concatenate([probabilities for _, probabilities in found])
    np.testing.assert_allclose(lh.state_probabilities(model, params, sequences), expected, atol=2e-6)


@EVERY
def test_the_gradient_is_that_of_differences(emission: Any, params: Any) -> None:
    params = {**params, "drift": wandering(KNOTS)}
    sequences = ragged(lh.HMM(2, emission), params)
    model = lh.HMM(2, emission).resolve(sequences)
    u = lh.unconstrain(model, params)

    def density(at: dict[str, Any]) -> float:
        with jax.enable_x64(True):
            prior = float(model.log_prior_unconstrained({name: np.asarray(each) for name, each in at.items()}))
        return lh.log_likelihood(model, lh.constrain(model, at), sequences) + prior

    slope = lh.gradient(model, params, sequences)
    assert u["drift"].shape == (KNOTS + 2,)
    for name, index in [("drift", 0), ("drift", 3), ("mean", 1), *([("gain", 2)] if "gain" in params else [])]:
        step = np.zeros_like(u[name])
        step[index] = 1e-4
        ends = [density({**u, name: u[name] + sign * step}) for sign in (1, -1)]
        assert slope[name][index] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5, abs=1e-6)


def test_held_out_rows_go_on_from_where_the_fitted_ones_end() -> None:
    model = lh.HMM(2, lh.Gaussian(drift=lh.Drift(KNOTS, rows=60)))
    params = {**LEVELS, "drift": wandering(KNOTS)}
    _, y = lh.simulate(model, params, 100, seed=2)
    fitted, held, _ = lh.open_data(y).split(0.4)
    resolved = model.resolve(fitted)
    how: Any = dict(sampler=lh.SGLD(1e-6), chains=1, draws=1, warmup=0, init=params, progress=False, verdict=False)
    posterior = lh.sample(resolved, fitted, **how)
    one = {name: np.asarray(each.isel(chain=0, draw=0)) for name, each in posterior.draws.items()}
    whole, first = (lh.log_likelihood(resolved, one, each) for each in (lh.open_data(y), fitted))
    assert posterior.score(held, after=fitted, draws=1).log_density == pytest.approx(whole - first, rel=1e-6)
    # The same from an array that does not know where it comes from.
    assert posterior.score(y[60:], after=fitted, draws=1).log_density == pytest.approx(whole - first, rel=1e-6)
    ahead = posterior.forecast(fitted, 5, draws=1, paths=4000)
    end = baseline(one["drift"], 60, 60.0)
    assert ahead.mean[4, 0] == pytest.approx(ahead.state_probabilities[4] @ one["mean"] + end, abs=0.15)


def test_it_is_stored_as_names_and_numbers() -> None:
    model = lh.HMM(2, lh.StudentT(drift=lh.Drift(7))).resolve(np.random.default_rng(0).normal(size=500))
    again = model_from_config(json.loads(json.dumps(model_to_config(model))))
    assert repr(again) == repr(model) and again.emission.is_resolved
    params = {"transition": MOVES, "df": [4.0, 5.0], "loc": [0.0, 1.0], "scale": [1.0, 1.0], "drift": wandering(7)}
    y = np.random.default_rng(1).normal(size=50)
    assert lh.log_likelihood(again, params, y) == lh.log_likelihood(model, params, y)
    loud = lh.HMM(2, lh.Gaussian(drift=lh.Drift(7, gain=True))).resolve(y)
    assert repr(pickle.loads(pickle.dumps(loud))) == repr(loud)  # as workers of a cluster get it
    again = model_from_config(json.loads(json.dumps(model_to_config(loud))))
    assert again.emission.is_resolved and again.emission.drift.about == pytest.approx(y.mean(), rel=1e-12)
    assert repr(again) == repr(loud) and list(again.emission.parameters(2)) == ["mean", "sd", "drift", "gain"]
    # A model that has not met data is stored, too.
    assert repr(model_from_config(model_to_config(lh.HMM(2, lh.Gaussian(drift=7)))).emission) == (
        "Gaussian(drift=Drift(knots=7))"
    )


def test_it_goes_with_tied_states_and_formulas() -> None:
    assert repr(lh.Tied(lh.Gaussian(drift=5), (0, 0, 1))) == "Tied(Gaussian(), levels=(0, 0, 1), drift=Drift(knots=5))"
    n = 60
    table = {"temp": np.linspace(-1, 1, n)}
    y = lh.open_data(np.random.default_rng(0).normal(size=n), covariates=table)
    model = lh.HMM(2, lh.Gaussian(mean="~ temp", drift=KNOTS), transitions="~ temp").resolve(y)
    coefficients = np.array([[10.0, 0.5], [13.0, -0.2]])
    with jax.enable_x64(True):
        rows = model.opened(y).rows(0, n)
        params = {"mean_coefficients": coefficients, "sd": LEVELS["sd"], "drift": wandering(KNOTS)}
        found = np.asarray(model.emission.log_likelihoods(params, rows))
    mean = coefficients[:, 0] + table["temp"][:, None] * coefficients[:, 1]
    away = baseline(params["drift"], n, np.arange(n))[:, None]
    np.testing.assert_allclose(found, stats.norm.logpdf(rows.values - away, mean, LEVELS["sd"]), rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lh.Poisson(drift=5), "not any real numbers"),
        (lambda: lh.Gaussian(drift="slow"), "drift must be"),
        (lambda: lh.Drift(0), "knots must be"),
        (lambda: lh.Drift(5, about=1.0), "about must be"),
        (lambda: lh.simulate(lh.HMM(2, QUIET), {**LEVELS, "drift": NONE, "gain": NONE}, 9), "about must be given"),
        (lambda: lh.Product(a=lh.Gaussian(drift=5)), "not of a stream"),
        (lambda: lh.simulate(lh.HMM(2, lh.Gaussian(drift=KNOTS)), {**LEVELS, "drift": wandering(KNOTS)}, 9), "rows"),
        (lambda: lh.HMM(2, WHITE).validate({**LEVELS, "drift": np.ones(KNOTS + 3)}), "mean over time is 0"),
    ],
)
def test_what_it_refuses(make: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        make()


def wandering_recording(seed: int, rows: int = 6000, knots: int = 8) -> tuple[lh.HMM, np.ndarray, Any]:
    """A model, a recording with a baseline of its own, and that baseline's coefficients."""
    emission = lh.Gaussian(drift=lh.Drift(knots, rows=rows))
    truth = {**LEVELS, "drift": wandering(knots, 0.5, seed)}
    _, y = lh.simulate(lh.HMM(2, emission), truth, rows, seed=seed)
    return lh.HMM(2, lh.Gaussian(drift=knots)), y, truth["drift"]


@pytest.mark.slow
def test_a_baseline_and_levels_are_found_again() -> None:
    inside, levels = [], []
    for seed in range(8):
        model, y, drift = wandering_recording(seed)
        posterior = lh.sample(model, y, seed=seed, draws=200, progress=False)
        found = posterior.baseline(points=50)
        true = baseline(drift, len(y), found["row"])
        inside.append(np.mean((found["lower"] <= true) & (true <= found["upper"])))
        ends = np.quantile(posterior.draws["mean"].stack(all=("chain", "draw")), [0.05, 0.95], axis=-1)
        levels.append((ends[0] <= LEVELS["mean"]) & (LEVELS["mean"] <= ends[1]))
    assert 0.8 < np.mean(inside) < 0.98
    assert np.mean(levels) >= 0.7


def louder(seed: int) -> tuple[np.ndarray, dict[str, np.ndarray], lh.Posterior]:
    """A recording whose levels and noise grow and shrink by a tenth and more, what did so, and its posterior."""
    rows, knots = 1500, 4
    emission = lh.Gaussian(drift=lh.Drift(knots, rows=rows, gain=True, about=11.0))
    truth = {"drift": wandering(knots, 0.3, 100 + seed), "gain": wandering(knots, 0.1, 200 + seed)}
    _, y = lh.simulate(lh.HMM(2, emission), {**LEVELS, **truth}, rows, seed=seed)
    model = lh.HMM(2, lh.Gaussian(drift=lh.Drift(knots, gain=True, about=11.0)))
    return y, truth, lh.sample(model, y, chains=2, draws=100, seed=seed, verdict=False, progress=False)


@pytest.mark.slow
def test_a_gain_is_found_again_and_its_intervals_cover_it(tmp_path: Any) -> None:
    inside = {"drift": [], "gain": []}
    for seed in range(6):
        y, truth, posterior = louder(seed)
        for name, own in inside.items():
            found = posterior.baseline(points=50, gain=name == "gain")
            true = baseline(truth[name], len(y), found["row"])
            true = np.exp(true) if name == "gain" else true
            own.append(np.mean((found["lower"] <= true) & (true <= found["upper"])))
            assert np.abs(found["mean"] - true).mean() < (0.03 if name == "gain" else 0.1)
    assert all(0.7 < np.mean(own) < 1.0 for own in inside.values())  # places go together: each mean is 0.9 ± 0.06
    page = posterior.report(y, tmp_path / "page.html", progress=False).read_text(encoding="utf-8")
    assert ">Gain<" in page and ">Baseline<" in page


@pytest.mark.slow
def test_the_no_u_turn_sampler_finds_the_same_posterior() -> None:
    model, y, _ = wandering_recording(0)
    chosen, nuts = (
        lh.sample(model, y, sampler=sampler, warmup=warmup, seed=0, draws=200, progress=False).draws
        for sampler, warmup in ((None, None), (lh.NUTS(), 100))
    )
    for name in ("drift", "mean", "sd"):
        one, other = (each[name].stack(all=("chain", "draw")).values for each in (chosen, nuts))
        assert np.all(np.abs(one.mean(-1) - other.mean(-1)) < 0.3 * other.std(-1))
        assert np.all(np.abs(np.log(one.std(-1) / other.std(-1))) < np.log(1.25))


def test_the_command_line_takes_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file, asked = str(tmp_path / "y.npy"), {}
    np.save(file, np.random.default_rng(0).normal(size=300))
    for wrong in ("0", "five", "20,gain,gain", "20,scale=", "5,knots=6"):
        refused = CliRunner().invoke(app, ["fit", file, "--states", "1", "--drift", wrong])
        assert refused.exit_code == 1 and "drift must be such as 20" in " ".join(refused.output.split())

    def rank(models: dict[str, lh.HMM], *args: Any, **how: Any) -> pd.DataFrame:
        asked.update(models)
        return pd.DataFrame({"n_states": [1]})

    monkeypatch.setattr("longhmm.posterior.compare.compare", rank)
    options = ["--states", "1,2", "--noise", "none", "--noise", "ma:3", "--drift", "0", "--drift", "5"]
    options += ["--drift", "9,scale=0.2,returns", "--drift", "9,gain"]
    kept = str(tmp_path / "runs")
    assert CliRunner().invoke(app, ["compare", file, *options, "--out", kept]).exit_code == 0
    assert list(asked)[4:6] == ["1 state, ma:3", "1 state, ma:3, drift 5"] and len(asked) == 16
    said = {name: repr(model.emission) for name, model in asked.items()}
    assert said["2 states"] == "Gaussian()" or said["2 states"].startswith("Gaussian(dim=1")
    assert said["2 states, ma:3, drift 5"] == "Gaussian(noise=MANoise(3, lags=6), drift=Drift(knots=5))"
    assert said["2 states, drift 9,scale=0.2,returns"].endswith("drift=Drift(knots=9, scale=0.2, returns=True))")
    assert said["2 states, drift 9,gain"].endswith("drift=Drift(knots=9, gain=True))")
