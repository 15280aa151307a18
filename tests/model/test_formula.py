"""Formulas: what they may say, what they learn and keep, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

import longhmm as lh
from longhmm.errors import DataError, ModelError
from longhmm.model.formula import Formula, design_matrix

RNG = np.random.default_rng(1)
FRAME = pd.DataFrame({"temp": RNG.normal(12, 3, 200), "slope": RNG.uniform(0, 40, 200), "zone": np.arange(200) % 3})
OTHER = pd.DataFrame({"temp": [10.0, 15.0], "slope": [5.0, 30.0], "zone": [2, 0]})


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("~ temp + slope + I(slope**2)", lambda f: [f.temp, f.slope, f.slope**2]),
        ("scale(temp)", lambda f: [(f.temp - FRAME.temp.mean()) / FRAME.temp.std(ddof=1)]),
        (
            "~ center(temp) * slope",
            lambda f: [f.temp - FRAME.temp.mean(), f.slope, (f.temp - FRAME.temp.mean()) * f.slope],
        ),
        ("~ C(zone)", lambda f: [f.zone == 1, f.zone == 2]),
        ("~ cos(2 * pi * temp / 24)", lambda f: [np.cos(2 * np.pi * f.temp / 24)]),
    ],
)
def test_columns_are_those_of_the_data_first_met(text, columns):
    learned = Formula(text).learned(FRAME)
    stored = Formula(text, json.loads(json.dumps(learned.state)))
    assert stored.columns == learned.columns and stored == learned and stored.state == learned.state
    for frame in (FRAME, OTHER):
        expected = np.stack(columns(frame), axis=1)
        np.testing.assert_allclose(learned.matrix(frame), expected, rtol=1e-12)
        np.testing.assert_array_equal(stored.matrix(frame), learned.matrix(frame))


@pytest.mark.parametrize("text", ["~ bs(temp, df=5)", "~ cc(slope, df=4)", "~ poly(slope, 3)", "~ cr(temp, df=4)"])
def test_splines_keep_their_knots(text):
    learned = Formula(text).learned(FRAME)
    stored = Formula(text, json.loads(json.dumps(learned.state)))
    np.testing.assert_allclose(stored.matrix(FRAME.iloc[3:5]), learned.matrix(FRAME)[3:5], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(stored.matrix(OTHER), learned.matrix(OTHER))


def test_columns_that_formulas_share_come_once():
    one, other = (Formula(text).learned(FRAME) for text in ("~ temp + slope", "~ slope + zone"))
    np.testing.assert_array_equal(design_matrix([one, other], OTHER), OTHER[["temp", "slope", "zone"]])


@pytest.mark.parametrize(
    "text",
    ["~ __import__('os').system('x')", "~ np.log(temp)", "~ temp.mean()", "~ open('x')", "y ~ temp", "~ a | b", "~ 1",
     "~ temp +", "~ lag(temp)", "~ [x for x in temp]", "~ I(lambda: 1)", 3],
)  # fmt: skip
def test_what_is_no_formula_of_covariates_is_refused(text):
    with pytest.raises(ModelError, match="must be terms of covariates"):
        Formula(text)


def test_data_that_do_not_fit_are_refused():
    learned = Formula("~ temp + C(zone)").learned(FRAME)
    with pytest.raises(ModelError, match=r"needs the covariate 'zone', but the data have \['temp'\]"):
        learned.matrix(FRAME[["temp"]])
    assert np.isnan(learned.matrix(OTHER.assign(zone=7))).all(axis=1).sum() == 0  # the other columns stay
    with pytest.raises(ModelError, match="must keep its intercept"):
        Formula("~ 0 + temp").learned(FRAME)
    model = lh.HMM(2, lh.Gaussian(), transitions="~ temp")
    y, frame = RNG.normal(size=200), FRAME.assign(temp=FRAME.temp.where(FRAME.index != 17))
    with pytest.raises(DataError, match=r"covariates must be finite, but covariate temp is nan at .*row 17"):
        lh.sample(model, lh.open_data(y, covariates=frame[["temp"]]), draws=5)
    with pytest.raises(ModelError, match=r"needs covariates by name, \['temp'\], but the array has none"):
        lh.sample(model, y, draws=5)
    with pytest.raises(ModelError, match="covariates without names"):
        lh.sample(model, lh.open_data(y, covariates=FRAME.temp.to_numpy()), draws=5)
    with pytest.raises(ModelError, match="'temp' must vary"):
        lh.sample(model, lh.open_data(y, covariates={"temp": np.ones(200)}), draws=5)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_read_by_name(tmp_path, ending):
    frame, file = FRAME.assign(y=RNG.normal(size=200)), tmp_path / f"data.{ending}"
    frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file)
    data = lh.open_data(file, columns=["y"], covariates=["slope", "temp"])
    model = lh.HMM(2, lh.Gaussian(), transitions="~ scale(temp)").resolve(data)
    seen = model.opened(data)
    assert not seen.in_memory and seen.n_covariates == 1 and seen.parts["covariates"].names == ("scale(temp)",)
    expected = (frame.temp - frame.temp.mean()) / frame.temp.std(ddof=1)
    np.testing.assert_allclose(seen.rows(50, 60).covariates[:, 0], expected[50:60], rtol=1e-12)
    np.testing.assert_array_equal(seen.rows(50, 60).values[:, 0], frame.y[50:60])
    assert model.opened(seen) is seen
    other = lh.HMM(2, lh.Gaussian(), transitions="~ slope").resolve(lh.open_data(frame.y, covariates=frame[["slope"]]))
    np.testing.assert_array_equal(other.opened(seen).rows(3, 4).covariates, [[frame.slope[3]]])  # from the raw ones
    with pytest.raises(DataError, match="columns must name the observations"):
        lh.open_data(file, covariates=["temp"])
    with pytest.raises(DataError, match="no column 'wind'"):
        lh.open_data(file, columns=["y"], covariates=["wind"])
