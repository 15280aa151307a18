"""Many kinds of model go the whole way: from a table in a file, with sequences of unequal length and missing values,
by the command line to a posterior, and from there to every answer, sampler and interface."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.errors import LongHMMError

pytestmark = pytest.mark.slow
LENGTHS = [160, 1, 99]
ROWS = sum(LENGTHS)
MOVES = np.array([[0.9, 0.1], [0.2, 0.8]])
LEVELS = {"mean": [0.0, 4.0], "sd": [1.0, 0.7]}


class Kind(NamedTuple):
    """A model as Python and as the command line has it, and what to simulate data from, of as many columns."""

    emission: lh.Emission
    options: list[str]
    made_by: lh.Emission
    params: dict[str, Any]
    columns: tuple[str, ...] = ("y",)
    covariates: tuple[str, ...] = ()
    transitions: str | None = None


def plain(emission: Any, options: list[str], params: dict[str, Any], **more: Any) -> Kind:
    """A model that makes its own data."""
    return Kind(emission, options, emission, params, **more)


def levels(emission: Any, *options: str, **more: Any) -> Kind:
    """A model of data that a simpler one makes."""
    return Kind(emission, ["--emission", "gaussian", *options], lh.Gaussian(), LEVELS, **more)


TRACK = {"step_concentration": [2.0, 6.0], "step_rate": [2.0, 1.0], "angle_loc": [0.0, 0.3]}
TRACK |= {"angle_concentration": [0.5, 4.0], "count_rate": [1.0, 6.0]}
SWINGS = {"intercept": [[0.0, 0.0], [2.0, 1.0]], "covariance": [np.eye(2), 0.5 * np.eye(2)]}
SWINGS |= {"phi": [[0.5 * np.eye(2), -0.2 * np.eye(2)], [0.2 * np.eye(2), 0.1 * np.eye(2)]]}
KINDS = {
    "product": plain(
        lh.Product(step=lh.Gamma(), angle=lh.VonMises(), count=lh.Poisson()),
        ["--emission", "step=gamma,angle=von-mises,count=poisson"],
        TRACK,
        columns=("step", "angle", "count"),
    ),
    "zero-inflated": plain(
        lh.ZeroInflated(lh.Gamma()),
        ["--emission", "zero-inflated"],
        {"zero": [0.6, 0.1], "concentration": [2.0, 6.0], "rate": [2.0, 1.0]},
    ),
    "hurdle": plain(
        lh.Hurdle(lh.Poisson()), ["--emission", "hurdle"], {"zero": [0.6, 0.1], "rate": [1.0, 6.0]}
    ),
    "gamma by moments": plain(
        lh.GammaMoments(), ["--emission", "gamma-moments"], {"mean": [1.0, 6.0], "sd": [0.5, 2.0]}
    ),
    "transitions": levels(lh.Gaussian(), "--transitions", "~ temp", covariates=("temp",), transitions="~ temp"),
    "autoregression": plain(lh.AR(2, lags=2), ["--emission", "ar", "--lags", "2"], SWINGS, columns=("a", "b")),
}  # fmt: skip
# Which are served, those with one matrix and without memory; others are refused in a sentence.
GIBBS = {"product", "zero-inflated", "hurdle", "gamma by moments", "autoregression"}


def table_of(kind: Kind) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    model = lh.HMM(2, kind.made_by)
    values = np.concatenate(lh.simulate(model, {"transition": MOVES, **kind.params}, LENGTHS, seed=1)[1])
    found = pd.DataFrame(values.astype(float).reshape(ROWS, -1), columns=list(kind.columns))
    for number, column in enumerate(kind.columns):
        found.loc[[10 + number, 200, 230 + number], column] = np.nan
    return found.assign(ID=np.repeat([1, 2, 3], LENGTHS), temp=rng.normal(size=ROWS), hour=np.arange(ROWS) % 24)


def told(*command: Any) -> str:
    found = CliRunner().invoke(app, [str(each) for each in command])
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.parametrize("name", KINDS)
def test_it_goes_the_whole_way(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    table, file, run = table_of(kind), tmp_path / "table.csv", tmp_path / "run"
    table.to_csv(file, index=False)
    chosen = ["--columns", ",".join(kind.columns), "--group", "ID"]
    said = told("fit", file, "--states", 2, "--draws", 20, "--chains", 2, "--out", run, *chosen, *kind.options)
    assert "Verdict: " in said
    told("decode", run, "--out", tmp_path / "events.csv")
    assert sum(pd.read_csv(tmp_path / "events.csv").eval("end - start")) == ROWS
    told("report", run)
    assert "<html" in (run / "report.html").read_text(encoding="utf-8")[:500]

    posterior = lh.load(run)
    model = lh.HMM(2, kind.emission, transitions=kind.transitions)
    assert repr(posterior.model.emission).partition("(")[0] == repr(model.emission).partition("(")[0]
    covariates = list(kind.covariates) or None
    data = lh.open_data(file, columns=list(kind.columns), covariates=covariates, group="ID")
    ahead = {"covariates": table[covariates][-3:]} if covariates else {}
    along = {"covariates": table[covariates]} if covariates else {}
    probabilities = posterior.state_probabilities(data, draws=2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert posterior.decode(data).shape == (ROWS,) and len(posterior.events(data)) >= len(LENGTHS)
    assert posterior.forecast(data, 3, draws=2, paths=2, **ahead).state_probabilities.shape == (3, 2)
    assert np.isfinite(posterior.score(data, draws=2).log_density)
    assert np.isfinite(posterior.predictive_log_prob(data, steps=1, draws=2).mean)
    params = posterior.mean_params()
    assert len(lh.simulate(posterior.model, params, ROWS, seed=1, **along)[1]) == ROWS
    assert posterior.verdict is not None

    how: dict[str, Any] = dict(chains=1, draws=2, warmup=2, init=params, progress=False, verdict=False)
    drawn = lh.sample(model, data, sampler=lh.NUTS(), **how).draws
    assert all(np.all(np.isfinite(each)) for each in drawn.values())

    from longhmm.sklearn import BayesianHMM

    estimator = BayesianHMM(2, kind.emission, transitions=kind.transitions, chains=1, draws=4, sampler=lh.SGLD(1e-6))
    X = table[list(kind.columns)].to_numpy()
    with pytest.warns(Warning, match="too few"):
        estimator.fit(X, lengths=LENGTHS, **along)
    assert estimator.predict(X, lengths=LENGTHS, **along).shape == (ROWS,)
    assert np.isfinite(estimator.score(X, lengths=LENGTHS, **along))

    try:
        served = lh.sample(model, data, sampler=lh.Gibbs(), **how).n_draws == 2
    except LongHMMError as refusal:
        served = False
        assert "Gibbs needs" in str(refusal) and str(refusal).count(". ") == 0
    assert served == (name in GIBBS)
