"""From words to models: names, priors, places, schemes."""

import numpy as np
import numpyro.distributions as dist
import pytest
import typer

import longhmm as lh
from longhmm import samplers
from longhmm.cli.options import build_model, located, one_of, parse_prior, whole_numbers
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.formula import chosen_columns
from longhmm.model.transitions.rates import scheme_or_formula

RNG = np.random.default_rng(0)
NO_NUMBERS = ("loc='x'", "loc=None", "loc=True", "loc={}", "loc=Normal('a', 1)", "loc=Normal([0, [1]], 1)", "loc=1j")


def test_names_come_from_the_registries(monkeypatch):
    samplers.SAMPLERS.classes()  # those that are loaded now are known to other tests, too
    monkeypatch.setattr(samplers.SAMPLERS, "_registered", dict(samplers.SAMPLERS._registered))
    monkeypatch.setattr(samplers.SAMPLERS, "_offered", set(samplers.SAMPLERS._offered))
    known = one_of(samplers.names)["parser"]
    assert known("nuts") == "nuts" and known("auto") == "auto"
    with pytest.raises(typer.BadParameter, match=r"'mine' is not one of auto, gibbs, hmc, nuts, sgld-cv, sgrld"):
        known("mine")

    @samplers.register("mine")
    class Mine(lh.Gibbs):
        pass

    assert known("mine") == "mine"
    assert type(samplers.from_name("mine")) is Mine


def test_rare_categories_are_counted():
    values = np.zeros(300_000, np.int64)
    values[123_456] = 7
    assert build_model("categorical", 2, open_data(values), priors=[], stay=None).emission.n_categories == 8


def test_priors_are_parsed_and_nothing_else_is_run():
    name, prior = parse_prior("loc = Normal(50, 20)")
    assert name == "loc"
    assert isinstance(prior, dist.Normal)
    assert (float(prior.loc), float(prior.scale)) == (50.0, 20.0)
    assert parse_prior("df=4") == ("df", 4)
    assert parse_prior("loc=[48, 137]") == ("loc", [48, 137])
    assert np.shape(parse_prior("loc=Normal([48, 137], scale=[5, 5])")[1].loc) == (2,)
    for text in (
        "loc",
        "=3",
        "loc=Normal(0",
        "loc=__import__('os')",
        "loc=Normal(open('x'), 1)",
        "loc=Uniform2(0, 1)",
        *NO_NUMBERS,
    ):
        with pytest.raises(ModelError, match="--prior must look like"):
            parse_prior(text)
    with pytest.raises(ModelError, match="needs the numbers loc, scale"):
        parse_prior("loc=Normal(3)")


def test_priors_and_weights_reach_the_model():
    data = open_data(RNG.normal(size=100))
    model = build_model("student-t", 3, data, priors=["df=4", "scale=HalfNormal(5)"], stay=20.0)
    assert repr(model.emission) == "StudentT(df=4, scale=HalfNormal(5))"
    np.testing.assert_array_equal(np.diag(model.transitions.concentration), 20.0)
    assert "sd" in build_model("gaussian", 2, data, priors=[], stay=None).emission.names
    two = open_data(RNG.normal(size=(9, 2)))
    assert "covariance" in build_model("gaussian", 2, two, priors=[], stay=None).emission.names
    assert "variance" in build_model("gaussian", 2, two, priors=["variance=1"], stay=None).emission.names
    with pytest.raises(ModelError, match="describes one feature, but the data have 2"):
        build_model("gaussian-mixture", 2, open_data(RNG.normal(size=(9, 2))), priors=[], stay=None)


def test_places_and_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert located(["a.npy", "example:nanopore", "s3://bucket/a"]) == [
        str(tmp_path / "a.npy"),
        "example:nanopore",
        "s3://bucket/a",
    ]
    assert chosen_columns(["1", "voltage"], None) == {"columns": [1, "voltage"], "covariates": None, "group": None}
    assert chosen_columns(["step, angle", "2"], None)["columns"] == ["step", "angle", 2]
    found = chosen_columns(None, "~ temp + log(wind)", "ID", "step=gamma,angle=von-mises")
    assert found == {"columns": ["step", "angle"], "covariates": ["temp", "wind"], "group": "ID"}


def test_numbers_in_a_range_or_a_list():
    assert whole_numbers("--states", "1..4") == [1, 2, 3, 4]
    assert whole_numbers("--states", "2,5,3") == [2, 5, 3]
    for text in ("", "a", "0..3", "3..1", "2,2", "1..2..3", "1..", "0"):
        with pytest.raises(ModelError, match="--states must be a range"):
            whole_numbers("--states", text)


def test_schemes_have_rates_per_second():
    moves = scheme_or_formula("C <-> O", None, 500.0)
    assert moves.states == ("C", "O") and float(moves.dt[0]) == 0.002
    assert scheme_or_formula(None, "~ temp", None) == "~ temp"
    model = build_model("gaussian", 2, open_data(RNG.normal(size=50)), priors=[], stay=None, transitions=moves)
    assert model.transitions is moves
    with pytest.raises(ModelError, match="--scheme needs the number of samples per second"):
        scheme_or_formula("C <-> O", None, None)
    with pytest.raises(ModelError, match="must not be given together"):
        scheme_or_formula("C <-> O", "~ temp", 500.0)


def test_dwell_times_have_names():
    how = dict(data=open_data(RNG.normal(size=50)), priors=[])
    model = build_model("gaussian", 2, stay=None, durations="gamma:30", **how)
    assert (model.transitions.kind, model.transitions.phases) == ("gamma", 30)
    assert build_model("gaussian", 2, stay=None, durations="phase-type", **how).transitions.phases == 2
    assert build_model("gaussian", 2, stay=5.0, durations="geometric", **how).transitions.dirichlet
    for text in ("weibull", "gamma:", "gamma:many", ""):
        with pytest.raises(
            ModelError, match="--durations must be one of geometric, negative-binomial, gamma, free, ph"
        ):
            build_model("gaussian", 2, stay=None, durations=text, **how)
    for more in ({"stay": 5.0}, {"stay": None, "transitions": "~ temp"}):
        with pytest.raises(ModelError, match="--durations must not be given with --scheme, --transitions or --stay"):
            build_model("gaussian", 2, durations="free", **more, **how)


def test_priors_are_shown_with_their_numbers():
    import numpyro.distributions as dist

    emission = lh.Emission(dist.Normal, loc=dist.Normal(0, 50), scale=dist.HalfNormal(5))
    assert repr(emission) == "Emission(Normal, loc=Normal(0, 50), scale=HalfNormal(5))"
    assert "Normal(0, 50)" in lh.HMM(2, emission)._repr_html_()
    by_state = lh.Emission(dist.Normal, loc=dist.Normal(np.array([0.0, 7.0]), 50), scale=dist.HalfNormal(5).expand([2]))
    assert repr(by_state) == "Emission(Normal, loc=Normal([0.0, 7.0], 50), scale=HalfNormal(5))"
    assert repr(lh.Gaussian(2, covariance=dist.InverseWishart(4.0, np.eye(2)))).endswith("covariance=InverseWishart)")
