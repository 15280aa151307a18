"""Langevin dynamics with and without momentum: what the noise of minibatches does where it is not corrected."""

import pytest

import longhmm as lh
from longhmm.samplers.preconditioning import InverseInformation
from longhmm.samplers.sgld import SGHMC, SGLD
from samplers.targets import moments, normal_mean, prepare, run


def mean_of_one_state(sampler):
    target, mean, sd = normal_mean()
    kernel, state = prepare(sampler, target, lh.Windows(2, 25), 0)
    found = moments(run(kernel, state, 5000, lambda state: state.coordinates["mean"][0]))
    return (found.mean - mean) / sd, found.sd / sd


@pytest.mark.parametrize("sampler", [SGLD(0.1, InverseInformation()), SGHMC(0.1)], ids=lambda sampler: sampler.name)
def test_without_correction_the_noise_of_minibatches_shows(sampler):
    shift, ratio = mean_of_one_state(sampler)
    assert abs(shift) < 0.2
    # h (N/S - 1) / 2 = 0.35 of the posterior variance is added.
    assert 1.12 < ratio < 1.30
