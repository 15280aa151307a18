"""Many kinds of model go the whole way: from a table in a file, with sequences of unequal length and missing values,
by the command line to a posterior, and from there to every answer, sampler and interface."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.errors import LongHMMError
from longhmm.model.serialise import model_to_config
from longhmm.posterior.diagnostics.model_fit import judge_fit

pytestmark = pytest.mark.slow
LENGTHS = [160, 1, 99]
ROWS = sum(LENGTHS)
MOVES = np.array([[0.9, 0.1], [0.2, 0.8]])
LEVELS = {"mean": [0.0, 4.0], "sd": [1.0, 0.7]}
SCHEME = lh.Rates("1 <-> 2", dt=0.1)
RATES = ["--scheme", "1 <-> 2", "--rate", "10"]
DAY = "~ s(hour, bs='cc', k=5, period=24)"
PAIR = lh.Channels(2, "C <-> O", dt=0.1)


class Kind(NamedTuple):
    """A model as Python has it, and the command line where it can; what to simulate data from, of as many columns."""

    emission: lh.Emission
    options: list[str] | None
    made_by: lh.Emission
    params: dict[str, Any]
    columns: tuple[str, ...] = ("y",)
    covariates: tuple[str, ...] = ()
    transitions: Any = None
    n_states: int = 2

    @property
    def model(self) -> lh.HMM:
        return lh.HMM(self.n_states, self.emission, transitions=self.transitions)


def plain(emission: Any, options: list[str], params: dict[str, Any], **more: Any) -> Kind:
    """A model that makes its own data."""
    return Kind(emission, options, emission, params, **more)


def levels(emission: Any, *options: str, **more: Any) -> Kind:
    """A model of data that a simpler one makes."""
    return Kind(emission, ["--emission", "gaussian", *options], lh.Gaussian(), LEVELS, **more)


def only_python(emission: Any, transitions: Any = None) -> Kind:
    """A model that the command line shows, but does not fit."""
    return Kind(emission, None, lh.Gaussian(), LEVELS, transitions=transitions)


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
    "mean": levels(lh.Gaussian(mean="~ temp"), "--prior", "mean=~ temp", covariates=("temp",)),
    "autoregression": plain(lh.AR(2, lags=2), ["--emission", "ar", "--lags", "2"], SWINGS, columns=("a", "b")),
    "autoregressive noise": levels(lh.Gaussian(noise=lh.ARNoise(1)), "--noise", "ar:1"),
    "drift": levels(lh.Gaussian(drift=lh.Drift(4)), "--drift", "4"),
    "gain": only_python(lh.Gaussian(drift=lh.Drift(4, gain=True))),
    "rates": levels(lh.Gaussian(), *RATES, transitions=SCHEME),
    "channels": levels(
        lh.EquallySpaced(PAIR.levels), "--scheme", "C <-> O", "--channels", "2", "--rate", "10",
        transitions=PAIR, n_states=3,
    ),
    "cyclic curve": levels(lh.Gaussian(mean=DAY), "--prior", f"mean={DAY}", covariates=("hour",)),
    "curve of transitions": levels(
        lh.Gaussian(), "--transitions", "~ s(temp, k=5)", covariates=("temp",), transitions="~ s(temp, k=5)"
    ),
    "random intercepts": levels(
        lh.Gaussian(mean="~ s(ID, bs='re')"), "--prior", "mean=~ s(ID, bs='re')", covariates=("ID",)
    ),
    "moving average": levels(lh.Gaussian(noise=lh.MANoise(2)), "--noise", "ma:2"),
    "step response": levels(lh.Gaussian(response=lh.StepResponse([0.5, 1])), "--response", "0.5,1"),
    "bessel filter": levels(lh.Gaussian(response=lh.StepResponse("bessel", cutoff=0.2)), "--response", "bessel:0.2"),
    "unknown response": levels(lh.Gaussian(response=lh.StepResponse(1)), "--response", "1"),
    "dwell times": levels(
        lh.Gaussian(), "--durations", "negative-binomial:4", transitions=lh.Durations("negative-binomial", phases=4)
    ),
    "phases": levels(
        lh.Gaussian(), "--durations", "phase-type:2", transitions=lh.Durations("phase-type", phases=2)
    ),
    "frames": only_python(lh.FrameAverage(), SCHEME),
    "brightness": levels(lh.Brightness(lh.Gaussian()), "--brightness"),
    "brightness and rates": levels(lh.Brightness(lh.Gaussian()), "--brightness", *RATES, transitions=SCHEME),
}  # fmt: skip
# Which are served, those with one matrix and without memory; others are refused in a sentence.
GIBBS = {"product", "zero-inflated", "hurdle", "gamma by moments", "autoregression", "mean", "drift", "gain"}
GIBBS |= {"brightness", "cyclic curve", "random intercepts"}


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


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@pytest.fixture(autouse=True)
def forget_programs() -> Iterator[None]:
    """A kind compiles thousands of them, and the system gives a process room for so many only."""
    yield
    jax.clear_caches()


def by_command_line(kind: Kind, file: Path, run: Path) -> lh.Posterior:
    """Fitted, decoded and shown; with columns in the order of the model."""
    chosen = ["--columns", ",".join(kind.columns), "--group", "ID", *(kind.options or [])]
    said = told("fit", file, "--states", kind.n_states, "--draws", 20, "--chains", 2, "--out", run, *chosen)
    assert "Verdict: " in said
    told("decode", run, "--out", run / "events.csv")
    assert sum(pd.read_csv(run / "events.csv").eval("end - start")) == ROWS
    told("report", run)
    return lh.load(run)


@pytest.mark.parametrize("name", KINDS)
def test_it_goes_the_whole_way(name: str, tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, model = KINDS[name], KINDS[name].model
    table, file, run = table_of(kind), tmp_path / "table.csv", tmp_path / "run"
    table.to_csv(file, index=False)
    covariates = list(kind.covariates) or None
    where: dict[str, Any] = dict(columns=list(kind.columns), covariates=covariates, group="ID")
    data = lh.open_data(file, **where)
    if kind.options is not None:
        posterior = by_command_line(kind, file, run)
    else:
        lh.sample(model, data, chains=2, draws=20, progress=False).save(run)
        posterior = lh.load(run)
        posterior.report(data, run / "report.html", progress=False)
    assert "<html" in (run / "report.html").read_text(encoding="utf-8")[:500]

    if kind.options is not None:
        assert json.loads((run / "run.json").read_text(encoding="utf-8"))["model"] == json.loads(
            json.dumps(model_to_config(model))
        )
    assert repr(posterior.model.emission).partition("(")[0] == repr(model.emission).partition("(")[0]
    assert type(posterior.model.transitions) is type(model.transitions)
    ahead = {"covariates": table[covariates][-3:]} if covariates else {}
    along = {"covariates": table[covariates]} if covariates else {}
    probabilities = posterior.state_probabilities(data, draws=2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert posterior.decode(data).shape == (ROWS,) and len(posterior.events(data)) >= len(LENGTHS)
    assert posterior.forecast(data, 3, draws=2, paths=2, **ahead).state_probabilities.shape == (3, kind.n_states)
    assert np.isfinite(posterior.score(data, draws=2).log_density)
    assert np.isfinite(posterior.predictive_log_prob(data, steps=1, draws=2).mean)
    params = posterior.mean_params()
    assert len(lh.simulate(posterior.model, params, ROWS, seed=1, **along)[1]) == ROWS
    verdict = posterior.diagnose(data, gradients=3, blocks=20)
    assert verdict.kind and verdict.details
    judged: dict[str, Any] = {}  # by checks of the model, which the verdict has no use for while chains are short
    judge_fit(posterior, posterior.model.opened(data), 20, judged)
    assert np.isfinite(judged["sandwich"]) and ("residual_distance" in judged) == (name != "product")
    assert ("held_out" in judged) == (name != "frames")

    # Rows in memory, on a cluster's workers, and read from the file as they are needed: the same answer.
    here = lh.log_likelihood(posterior.model, params, data)
    assert lh.log_likelihood(posterior.model, params, lh.on_cluster(data, client)) == pytest.approx(here, rel=1e-6)
    with monkeypatch.context() as patched:
        patched.setattr("longhmm.data.sequences.IN_MEMORY", 0)
        assert lh.log_likelihood(posterior.model, params, lh.open_data(file, **where)) == pytest.approx(here, rel=1e-6)

    how: dict[str, Any] = dict(chains=1, draws=2, warmup=2, init=params, progress=False, verdict=False)
    drawn = lh.sample(model, data, sampler=lh.NUTS(), **how).draws
    assert all(np.all(np.isfinite(each)) for each in drawn.values())

    from longhmm.sklearn import BayesianHMM

    own: Any = dict(transitions=kind.transitions, chains=1, draws=4, sampler=lh.SGLD(1e-6))
    estimator = BayesianHMM(kind.n_states, kind.emission, **own)
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
