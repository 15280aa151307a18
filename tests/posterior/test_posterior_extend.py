"""More draws of the same run, bit for bit, in memory and from a checkpoint; and the same run with half the step."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.posterior.diagnostics.bias import compare_halved, compared
from longhmm.run import driver
from longhmm.samplers.preconditioning import InverseInformation
from posterior.fakes import gaussian_model

PARAMS = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
MODEL = lh.HMM(2, lh.Poisson())


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """One compiled program of 20 draws serves runs of any length."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "BLOCK_DRAWS", 20)
        yield


@pytest.fixture(scope="module")
def counts():
    return lh.simulate(MODEL, PARAMS, length=20_000, seed=1)[1]


def run(data, draws, sampler=None, model=MODEL, **options):
    settings = {"thin": 2, "warmup": 40, "chains": 2, "seed": 3, "progress": False, **options}
    return lh.sample(model, data, sampler=sampler, draws=draws, **settings)


def assert_same(one, other):
    for name in other.draws:
        np.testing.assert_array_equal(one.draws[name], other.draws[name])


@pytest.fixture(scope="module")
def whole(counts):
    return run(counts, 40)


def test_the_default_goes_on_to_the_same_draws(counts, whole):
    posterior = run(counts, 20)
    posterior.diagnose()
    assert posterior.extend(20, progress=False) is posterior
    assert_same(posterior, whole)
    assert posterior.n_draws == posterior.settings["draws"] == 40 and posterior.verdict is None
    with pytest.raises(ModelError, match="draws must be a whole number of at least 1, got 0"):
        posterior.extend(0)


def test_a_loaded_run_goes_on_from_its_checkpoint(counts, whole, tmp_path):
    run(counts, 20, checkpoint=tmp_path / "state").save(tmp_path / "saved")
    loaded = lh.load(tmp_path / "saved")
    with pytest.raises(ModelError, match="data must be the data of the run"):
        loaded.extend(20)
    with pytest.raises(lh.errors.LongHMMError, match="the data differ"):
        loaded.extend(20, counts[:-1], progress=False)
    assert_same(loaded.extend(20, counts, progress=False), whole)
    whole.save(tmp_path / "without")
    with pytest.raises(ModelError, match="kept no checkpoint"):
        lh.load(tmp_path / "without").extend(20, counts)


@pytest.mark.parametrize(
    "sampler", [lh.SGRLD(0.05), lh.Gibbs(), pytest.param(lh.NUTS(), marks=pytest.mark.slow)], ids=lambda s: s.name
)
def test_other_samplers_go_on_too(counts, sampler):
    options = {"windows": lh.Windows(5, 10), "init": PARAMS, "thin": 1}
    posterior = run(counts[:600], 20, sampler, **options)
    assert_same(posterior.extend(20, progress=False), run(counts[:600], 40, sampler, **options))


def test_half_the_step_changes_nothing_for_the_default(counts, whole):
    found = compare_halved(whole, lh.open_data(counts))
    assert np.all(np.abs(found.shift) < 4 * found.shift_error)
    assert np.all(np.abs(found.sd_ratio - 1) < 4 * found.sd_ratio_error)
    assert np.all(found.shift_error < 0.5)


def test_half_the_step_shows_the_noise_of_minibatches():
    """With a step h the variance is `(1 + h (N/S - 1) / 2) / (1 - h / 2)` times the posterior's, N/S - 1 being 7."""
    model = gaussian_model(1)
    y = np.random.default_rng(5).normal(3.0, 1.0, 1000).astype(np.float32)
    options = {"windows": lh.Windows(2, 25), "buffer": lh.FixedBuffer(0), "thin": 5, "init": None, "chains": 4}
    posterior = run(y, 1000, lh.SGLD(0.4, InverseInformation()), model, **options)
    verdict = posterior.diagnose(y, gradients=0, half_step=True)
    assert verdict.kind == "biased" and "half the step" in verdict.reason
    assert verdict.details["half_step_sd_ratio"] == pytest.approx(np.sqrt((2.4 / 0.8) / (1.7 / 0.9)), abs=0.08)


def test_halved_comparison_measures_what_was_put_in():
    rng = np.random.default_rng(0)
    full, half = rng.normal(size=(4, 2000, 2)), rng.normal(size=(4, 2000, 2))
    full[..., 1] = 0.3 + 1.2 * full[..., 1]
    found = compared(full, half)
    np.testing.assert_allclose(found.shift, [0.0, 0.3], atol=4 * found.shift_error.max())
    np.testing.assert_allclose(found.sd_ratio, [1.0, 1.2], atol=4 * found.sd_ratio_error.max())
    assert found.shift_error.max() < 0.02 and found.sd_ratio_error.max() < 0.02


def test_samplers_without_a_step_have_nothing_to_halve(counts):
    posterior = run(counts[:600], 20, lh.Gibbs(), init=PARAMS, thin=1)
    assert compare_halved(posterior, lh.open_data(counts[:600])) is None
