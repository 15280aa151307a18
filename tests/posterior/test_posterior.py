"""Labelled draws: dimensions, thinning, means, summary, and what is shown of them."""

import arviz as az
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr

from longhmm import Emission, Poisson, Tied, VonMises
from longhmm.backends.answers import log_likelihood
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.diagnostics.verdict import Verdict
from longhmm.posterior.draws import parameter_axes
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.summary import effective_sizes, levels
from posterior.fakes import chains_of, gaussian_model, known_states, small_posterior, unconstrained


@pytest.mark.parametrize(
    "emission",
    [VonMises(), Tied(VonMises(), (0, 1)), Emission(dist.VonMises, loc=dist.VonMises(0.0, 0.1), concentration=2.0)],
)
def test_angles_are_reported_as_the_data_have_them(emission):
    """The default prior is cut near 1.4: its turn runs to 7.7, but draws and levels stay with the data."""
    rng = np.random.default_rng(0)
    data = np.mod(np.concatenate([rng.normal(-0.3, 0.2, 500), rng.normal(3.13, 0.2, 500)]) + np.pi, 2 * np.pi) - np.pi
    model = HMM(2, emission).resolve(data)
    angles = np.stack([rng.normal(-0.3, 0.02, (2, 400)), rng.normal(3.13, 0.02, (2, 400))], axis=-1)
    turns = 2 * np.pi * rng.integers(-1, 2, angles.shape)
    natural = {"transition": rng.dirichlet([9.0, 1.0], (2, 400, 2)), "loc": angles + turns}
    if "concentration" in parameter_axes(model):
        natural["concentration"] = np.full((2, 400, 2), 4.0)
    posterior = Posterior.from_chains(model, chains_of(model, natural, mode=one_of(model, natural)))
    drawn = posterior.draws["loc"].values
    np.testing.assert_allclose(drawn, angles, atol=1e-6)  # one run of numbers, also where they pass pi
    table = posterior.summary()
    for state in (0, 1):
        row = table.loc[f"loc[{state}]"]
        assert -np.pi < row["mean"] <= np.pi
        assert row["mean"] == pytest.approx(angles[..., state].mean(), abs=1e-6)
        assert row["sd"] == pytest.approx(0.02, rel=0.1) and row["r_hat"] < 1.01
        assert row["5%"] == pytest.approx(np.quantile(angles[..., state], 0.05), abs=1e-6)
    found = levels(posterior)
    np.testing.assert_allclose(found["level"], angles.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(found["level_upper"], np.quantile(angles, 0.95, axis=(0, 1)), atol=1e-3)
    assert np.all(np.abs(posterior.mode["loc"]) <= np.pi)
    again = posterior.params_at(0, 3)
    np.testing.assert_allclose(again["loc"], angles[0, 3], atol=1e-6)
    at = {**again, "loc": again["loc"] + 2 * np.pi}  # any number of turns means the same
    assert log_likelihood(model, at, data) == pytest.approx(log_likelihood(model, again, data))


def one_of(model, natural):
    """Coordinates of the first draw, as the mode of a run."""
    return {name: value[0, 0] for name, value in unconstrained(model, natural).items()}


def test_summary(posterior):
    table = posterior.summary()
    assert list(table.columns) == ["mean", "sd", "5%", "95%", "r_hat", "ess_bulk", "ess_tail"]
    assert list(table.index) == [f"transition[{i}, {j}]" for i in (0, 1) for j in (0, 1)] + ["mean[0]", "mean[1]"]
    values = posterior.draws["mean"].values[:, :, 1]
    row = table.loc["mean[1]"]
    assert row["mean"] == pytest.approx(values.mean())
    assert row["sd"] == pytest.approx(values.std(ddof=1))
    assert row["5%"] == pytest.approx(np.quantile(values, 0.05))
    assert row["r_hat"] == pytest.approx(float(az.rhat(values)))
    assert row["ess_bulk"] == pytest.approx(float(az.ess(values)))
    assert "2.5%" in posterior.summary(interval=0.95)


def test_entries_that_never_move_have_no_r_hat():
    model = gaussian_model(2, fixed_rows={0: [0.3, 0.7]})
    rng = np.random.default_rng(0)
    transition = rng.dirichlet([2.0, 2.0], size=(4, 50, 2))
    transition[:, :, 0] = [0.3, 0.7]
    posterior = Posterior.from_chains(
        model, chains_of(model, {"transition": transition, "mean": rng.normal(size=(4, 50, 2))})
    )
    table = posterior.summary()
    assert table.loc[["transition[0, 0]", "transition[0, 1]"], ["r_hat", "ess_bulk"]].isna().all().all()
    assert table.loc["transition[1, 0]"].notna().all()


def test_a_single_chain_is_compared_with_itself(known):
    steady = known.posterior(known.draw(1, 400))
    assert float(steady.summary()["r_hat"].max()) < 1.02
    natural = known.draw(1, 400)
    natural["mean"][0, 200:, 1] += 3 * known.sd[1]
    assert float(known.posterior(natural).summary().loc["mean[1]", "r_hat"]) > 1.5


def test_effective_sizes_see_autocorrelation():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4, 4000, 2))
    series = noise.copy()
    for t in range(1, 4000):
        series[:, t, 1] = 0.8 * series[:, t - 1, 1] + noise[:, t, 1]
    found = effective_sizes(series)
    assert found[0] == pytest.approx(16000, rel=0.15)
    assert found[1] == pytest.approx(16000 * 0.2 / 1.8, rel=0.2)


def test_to_arviz(posterior):
    data = posterior.to_arviz()
    assert np.array_equal(data["posterior"]["mean"].values, posterior.draws["mean"].values)
    assert "log_likelihood" in data["sample_stats"]
    assert "unconstrained_posterior" in (data.groups() if callable(getattr(data, "groups", None)) else data.children)
    assert float(az.rhat(data["posterior"].to_dataset() if isinstance(data["posterior"], xr.DataTree) else
                         data["posterior"])["mean"].max()) < 1.05  # fmt: skip


def test_repr_is_one_line(posterior):
    text = repr(posterior)
    assert text.startswith("Posterior(4 chains x 500 draws, HMM(n_states=2")
    assert text.endswith("closed form, not yet diagnosed)")
    assert "\n" not in text


def test_notebook_page_is_short_and_escaped():
    posterior = small_posterior(gaussian_model(3))
    posterior.notes = ("<script>alert(1)</script>",)
    posterior.verdict = Verdict("run longer", "R-hat of <b> is 2.")
    page = posterior._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "R-hat of &lt;b&gt;" in page
    assert page.count("<tr>") == 4
    mean = posterior.draws["mean"].values[:, :, 0].mean()
    assert f"{mean:.4g} ±" in page


def test_coordinates_of_another_model_are_refused():
    chains = chains_of(gaussian_model(), known_states(100).draw(2, 3))
    with pytest.raises(ModelError, match="coordinates named"):
        Posterior.from_chains(HMM(2, Poisson()), chains)
