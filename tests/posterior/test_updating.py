"""More data: the posterior of all of them, found from the old mode, is that of a run from the start."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.posterior.updating import appended
from longhmm.samplers.mode import find_mode
from longhmm.target.coordinates import Flat

TRUTH = {"transition": [[0.98, 0.02], [0.05, 0.95]], "rate": [1.0, 6.0]}


@pytest.fixture(scope="module")
def parts():
    model = lh.HMM(n_states=2, emission=lh.Poisson())
    values = lh.simulate(model, TRUTH, 6000, seed=2)[1]
    return model.resolve(open_data(values[:4000])), values[:4000], values[4000:]


def test_the_mode_next_to_the_old_one_is_the_mode_of_all_data(parts):
    model, old, new = parts
    before = find_mode(model, open_data(old))
    whole = appended(open_data(old), open_data(new), continues=True)
    fresh = find_mode(model, whole)
    found = find_mode(model, whole, near=(before.coordinates, 1.5 * before.information))
    flat = Flat.like(fresh.coordinates)
    gap = flat.ravel_numpy(found.coordinates) - flat.ravel_numpy(fresh.coordinates)
    assert gap @ fresh.information @ gap < 0.02  # posterior standard deviations, squared
    np.testing.assert_allclose(found.information, fresh.information, rtol=0.02, atol=0.02 * fresh.information.max())
    far = flat.ravel_numpy(before.coordinates) - flat.ravel_numpy(fresh.coordinates)
    assert far @ fresh.information @ far > 0.1  # there was some way to go


def test_new_rows_go_on_or_stand_apart():
    old, new = open_data([np.arange(3.0), np.arange(4.0)]), open_data(np.arange(5.0))
    assert appended(old, new).offsets.tolist() == [0, 3, 7, 12]
    went_on = appended(old, new, continues=True)
    assert went_on.offsets.tolist() == [0, 3, 12] and went_on.in_memory
    np.testing.assert_array_equal(went_on.rows(5, 9).values[:, 0], [2, 3, 0, 1])
    known = open_data(np.arange(4.0), states=[0, 1, -1, 0], mask=[False, True, False, False])
    both = appended(known, new).rows(0, 9)
    assert both.states.tolist() == [0, 1, -1, 0, *[-1] * 5] and both.observed[:, 0].tolist().count(False) == 1
    with pytest.raises(
        DataError, match=r"new_data must have 1 feature\(s\) and 0 covariate\(s\) like the data of the run"
    ):
        appended(new, open_data(np.zeros((4, 2))))


@pytest.mark.slow
def test_update_is_a_run_on_all_data_for_less(parts, tmp_path):
    model, old, new = parts
    posterior = lh.sample(model, old, draws=150, seed=1, progress=False)
    found = posterior.update(new, continues=True, progress=False)
    assert found is not posterior and found.settings["data"]["length"] == 6000 and found.n_draws == 150
    fresh = lh.sample(model, np.concatenate([old, new]), draws=150, seed=3, progress=False)
    for name in ("rate", "transition"):
        a, b = (each.draws[name].mean(("chain", "draw")) for each in (found, fresh))
        sd = fresh.draws[name].std(("chain", "draw"))
        assert float((np.abs(a - b) / sd).max()) < 0.35, name
    posterior.save(tmp_path / "run")
    loaded = lh.load(tmp_path / "run")
    with pytest.raises(ModelError, match="data must be the data of the run"):
        loaded.update(new)
    again = loaded.update(new, data=old, continues=True, progress=False)
    np.testing.assert_allclose(again.mode["rate"], found.mode["rate"], rtol=1e-4)
