"""A checkpoint serves the problem that it was written for, and no other: whatever changes the posterior is refused."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.model.transitions import TransitionModel
from longhmm.run import request
from longhmm.run.checkpoint import CheckpointError
from longhmm.run.request import differences, fingerprint

LENGTH = 3000
RUN = {"chains": 2, "draws": 4, "warmup": 0, "thin": 1, "progress": False}
INIT = {"transition": [[0.9, 0.1], [0.2, 0.8]], "loc": [0.0, 5.0]}


def gaussian(loc=None, scale=1.0):
    return lh.Emission(dist.Normal, loc=dist.Normal(0.0, 10.0) if loc is None else loc, scale=scale)


def model(emission=None, **options):
    return lh.HMM(2, gaussian() if emission is None else emission, **options)


@pytest.fixture(scope="module")
def y():
    return np.asarray(lh.simulate(model(), INIT, LENGTH, seed=0)[1], np.float64)


@pytest.fixture(scope="module")
def finished(y, tmp_path_factory):
    """A short run that kept a checkpoint, and its draws."""
    place = tmp_path_factory.mktemp("finished") / "run"
    return place, again(place, model(), y)


def again(place, chosen, data, **changed):
    options = {**RUN, "sampler": lh.SGLD(step_size=1e-4), "init": INIT, **changed}
    return np.asarray(lh.sample(chosen, data, checkpoint=place, **options).draws["loc"])


def test_the_same_problem_takes_up_its_checkpoint(finished, y):
    place, draws = finished
    np.testing.assert_array_equal(again(place, model(), y.copy()), draws)
    assert again(place, model(), y, draws=6, time_limit=100.0).shape == (2, 6, 2)


def shifted(y):
    changed = y.copy()
    changed[1100:2900] += 3.0
    return changed


MODELS = {
    "prior": (model(gaussian(dist.Normal(100.0, 0.01))), "emission"),
    "fixed value": (model(gaussian(scale=2.0)), "emission"),
    "initial": (model(initial=[0.9, 0.1]), "initial"),
    "stationary": (model(initial="stationary"), "initial"),
    "concentration": (model(transition_prior=lh.Sticky(20.0)), "transitions"),
    "forbidden": (model(transition_prior=[[1.0, 1.0], [0.0, 1.0]]), "transitions"),
    "fixed row": (model(fixed_rows={0: [0.9, 0.1]}), "transitions"),
    "tied": (model(lh.Tied(gaussian(), [0, 0])), "emission"),
    "states": (lh.HMM(3, gaussian()), "n_states"),
}


@pytest.mark.parametrize("name", MODELS)
def test_another_model_is_refused(finished, y, name):
    other, part = MODELS[name]
    with pytest.raises(CheckpointError, match=rf"the model differs \(.*{part}.*\)") as refusal:
        again(finished[0], other, y)
    assert "data" not in str(refusal.value) and "settings" not in str(refusal.value)
    assert str(finished[0]) in str(refusal.value) and str(refusal.value).count(". ") == 0


def one_row(y, row):
    changed = y.copy()
    changed[row] += 1e-9
    return changed


def masked(y, row):
    mask = np.zeros(LENGTH, bool)
    mask[row] = True
    return lh.open_data(y, mask=mask)


def known(y, state):
    states = np.full(LENGTH, -1)
    states[1234] = state
    return lh.open_data(y, states=states)


DATA = {
    "shifted in the middle": (shifted, "values"),
    "first row": (lambda y: one_row(y, 0), "values"),
    "one row": (lambda y: one_row(y, 1_777), "values"),
    "last row": (lambda y: one_row(y, -1), "values"),
    "two rows exchanged": (lambda y: y[np.r_[:500, 501, 500, 502:LENGTH]], "values"),
    "six sequences": (lambda y: np.split(y, 6), "ends of the sequences"),
    "shorter": (lambda y: y[:-1], "shape"),
    "precision": (lambda y: y.astype(np.float32), "type"),
    "mask": (lambda y: masked(y, 1500), "mask"),
    "known states": (lambda y: known(y, 1), "known states"),
    "covariates": (lambda y: lh.open_data(y, covariates=np.arange(LENGTH) % 7), "covariates"),
}


@pytest.mark.parametrize("name", DATA)
def test_other_data_are_refused(finished, y, name):
    change, part = DATA[name]
    with pytest.raises(CheckpointError, match=rf"the data differ \(.*{part}.*\)") as refusal:
        again(finished[0], model(), change(y))
    assert "model" not in str(refusal.value) and "settings" not in str(refusal.value)


SETTINGS = {
    "seed": {"seed": 1},
    "chains": {"chains": 3},
    "warmup": {"warmup": 1},
    "thin": {"thin": 2},
    "windows": {"windows": lh.Windows(5)},
    "buffer": {"buffer": lh.FixedBuffer(7)},
    "sampler": {"sampler": lh.SGLD(step_size=1e-3)},
    "init": {"init": {**INIT, "loc": [0.0, 4.0]}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings_are_refused(finished, y, name):
    with pytest.raises(CheckpointError, match=rf"the settings differ \({name}\)") as refusal:
        again(finished[0], model(), y, **SETTINGS[name])
    assert "model" not in str(refusal.value) and "data" not in str(refusal.value)


def test_a_chosen_sampler_is_not_the_automatic_one(y, tmp_path):
    again(tmp_path / "run", model(), y)
    with pytest.raises(CheckpointError, match=r"the settings differ \(sampler\)"):
        again(tmp_path / "run", model(), y, sampler=None)


def test_masks_and_known_states_are_told_apart(y):
    marks = [request.digest(data) for data in (masked(y, 3), masked(y, 4), known(y, 0), known(y, 1), lh.open_data(y))]
    assert len({mark["mask"] for mark in marks}) == 3 and len({mark["known states"] for mark in marks}) == 3


def test_a_sampler_is_the_same_in_another_process(y):
    """Neither addresses of functions nor the order of a dictionary enter."""
    one, other = (fingerprint(model(), lh.open_data(y), {"sampler": lh.SGRLD.paper()}) for _ in range(2))
    assert one == other and "0x" not in str(one)


def heavy(df):
    return lambda loc, scale: dist.StudentT(df, loc, scale)


def test_a_model_of_ones_own_is_known_by_what_it_computes(y):
    def mark(df, loc=10.0):
        own = lh.Emission(heavy(df), loc=dist.Normal(0.0, loc), scale=dist.HalfNormal(5.0))
        return fingerprint(lh.HMM(2, own), lh.open_data(y), {})

    assert mark(4.0) == mark(4.0)
    for other in (mark(5.0), mark(4.0, 11.0)):
        assert differences(mark(4.0), other) == ["the model differs (emission)"]


class Tempered(TransitionModel):
    """Matrices that vary with one covariate; `scale` is a number of the model that no parameter shows."""

    n_states, shape, n_covariates = 2, (2,), 1

    def __init__(self, scale):
        self.scale = scale

    def matrices(self, coefficients, covariates):
        stay = jax.nn.sigmoid(coefficients + self.scale * covariates)
        rows = jnp.stack([stay, 1 - stay], axis=-1)
        return rows.at[..., 1, :].set(rows[..., 1, ::-1])

    def log_prior(self, coefficients):
        return -0.5 * jnp.sum(coefficients**2)


def test_transitions_of_ones_own_are_known_by_what_they_compute(y):
    def mark(scale, shift=0):
        data = lh.open_data(y, covariates=(np.arange(LENGTH) + shift) % 7)
        return fingerprint(lh.HMM(2, gaussian(), transitions=Tempered(scale)), data, {})

    assert mark(0.1) == mark(0.1)
    assert differences(mark(0.1), mark(0.2)) == ["the model differs (transitions)"]
    assert "the data differ (covariates)" in differences(mark(0.1), mark(0.1, 1))


# Files ----------------------------------------------------------------------------------------------------------


def test_a_file_and_an_array_with_its_values_are_the_same_data(y, tmp_path):
    np.save(tmp_path / "y.npy", y)
    assert request.digest(lh.open_data(tmp_path / "y.npy")) == request.digest(lh.open_data(y))


def test_long_files_are_known_by_size_time_and_blocks_and_the_refusal_says_so(y, tmp_path, monkeypatch):
    monkeypatch.setattr("longhmm.data.sequences.IN_MEMORY", 0)  # as if the file were long
    monkeypatch.setattr(request, "WHOLE", 1000)
    monkeypatch.setattr(request, "BLOCK_ROWS", 10)
    path = tmp_path / "y.npy"
    np.save(path, y)
    os.utime(path, ns=(10**18, 10**18))
    place = tmp_path / "run"
    draws = again(place, model(), path)
    np.testing.assert_array_equal(again(place, model(), path), draws)
    os.utime(path, ns=(10**18, 10**18 + 10**9))
    with pytest.raises(CheckpointError, match=r"the data differ \(time of change\).*not every value"):
        again(place, model(), path)
    np.save(path, shifted(y))  # a change in the middle that keeps the time
    os.utime(path, ns=(10**18, 10**18))
    with pytest.raises(CheckpointError, match=r"the data differ \(values\).*64 blocks"):
        again(place, model(), path)


def test_refusals_name_all_that_differs(y):
    one = fingerprint(model(), lh.open_data(y), {"seed": 0, "thin": None})
    other = fingerprint(model(initial=[0.8, 0.2]), lh.open_data(shifted(y)), {"seed": 1, "thin": None})
    expected = ["the model differs (initial)", "the data differ (values)", "the settings differ (seed)"]
    assert differences(one, other) == expected
    assert differences(one, one) == [] and differences({}, one) != []
