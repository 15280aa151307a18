"""Exact gradients against draws: silent on exact ones, measured where they are off."""

import jax
import numpy as np
import pytest
from scipy import linalg

from longhmm import Gaussian, VonMises
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.diagnostics.bias import (
    bias,
    by_passes,
    complaint,
    derivatives_along,
    entries,
    exact_gradients,
    layout,
    stein,
)
from longhmm.posterior.draws import evenly_spaced
from longhmm.target.coordinates import Flat
from longhmm.target.target import exact
from model.configurations import prior_draw
from posterior.fakes import chains_of, distorted, known_states, unconstrained


@pytest.fixture(scope="module")
def known():
    return known_states()


def check(known, natural, n=24):
    posterior = known.posterior(natural)
    coordinates = {name: np.asarray(value) for name, value in posterior.unconstrained.items()}
    table = entries(posterior)
    points, gradients = exact_gradients(coordinates, by_passes(known.model, known.sequences), n)
    slopes = derivatives_along(known.model, layout(coordinates), points, table.columns, table.directions)
    return stein(table.values, table.directions, gradients, slopes)


# Entries come in the order of the summary: four transitions, mean[0], mean[1].


def test_exact_draws_pass(known):
    found = check(known, known.draw(4, 1000))
    assert np.all(np.abs(found.shift) < 3.5 * found.shift_error)
    assert np.all(np.abs(found.sd_ratio - 1) < 3.5 * found.sd_ratio_error)
    # Few gradients are enough: the error is that of 4,000 draws, not that of 24 gradients.
    assert np.all(found.shift_error < 0.05)
    assert np.all(found.sd_ratio_error < 0.06)


def test_a_shift_is_measured(known):
    found = check(known, distorted(known, shift=0.3))
    assert found.shift[5] == pytest.approx(0.3, abs=4 * found.shift_error[5])
    assert np.all(np.abs(found.shift[:5]) < 0.1)
    assert np.all(np.abs(found.sd_ratio - 1) < 0.06)


def test_too_wide_draws_are_measured(known):
    found = check(known, distorted(known, width=1.15))
    assert found.sd_ratio[5] == pytest.approx(1.15, abs=4 * found.sd_ratio_error[5])
    assert np.all(np.abs(found.sd_ratio[:5] - 1) < 0.06)
    assert np.all(np.abs(found.shift) < 0.1)


def identity(draws, n):
    """Natural parameters that are their own coordinates: covariances, and derivatives along them."""
    flat = draws.reshape(-1, draws.shape[-1])
    directions = np.atleast_2d(np.cov(flat, rowvar=False))
    return flat[evenly_spaced(len(flat), n)], directions, np.broadcast_to(np.diag(directions), (n, draws.shape[-1]))


def test_errors_are_honest():
    """Over repetitions, shift and width scatter by what they report, seen from closed-form gradients."""
    rng = np.random.default_rng(0)
    t_shift, t_width = [], []
    for _ in range(200):
        draws = rng.gamma(20.0, size=(4, 100, 1))  # skewed: g = 19 / u - 1
        points, directions, slopes = identity(draws, 40)
        found = stein(draws, directions, 19.0 / points - 1.0, slopes)
        t_shift.append(found.shift[0] / found.shift_error[0])
        t_width.append((found.sd_ratio[0] - 1) / found.sd_ratio_error[0])
    for t in (t_shift, t_width):
        assert 0.5 < np.std(t) < 1.3
        assert abs(np.mean(t)) < 0.6


def dirichlet_rows(rng, counts, chains=4, draws=1000, n=32):
    """Rows of transitions in log-ratio coordinates, each with its own posterior: values and closed-form pieces."""
    basis = np.linalg.svd(np.ones((1, len(counts[0]))))[2][1:].T  # orthonormal, orthogonal to equal logarithms
    found = []
    for row in counts:
        alpha = 1.0 + np.asarray(row)
        values = rng.dirichlet(alpha, size=(chains, draws))
        flat = values.reshape(-1, len(row))
        coordinates = np.log(flat) @ basis
        directions = (coordinates - coordinates.mean(axis=0)).T @ (flat - flat.mean(axis=0)) / (len(flat) - 1)
        at = flat[evenly_spaced(len(flat), n)]
        logs = basis @ directions  # how logarithms move along each direction
        slopes = at * (np.diag(logs) - at @ logs)
        found.append((values, directions, (alpha - alpha.sum() * at) @ basis, slopes))
    return found


def test_rare_transitions_raise_no_false_alarm():
    """Rows in which most transitions never occurred: the logarithms of nearly exponential variables.

    Compared in coordinates, widths came out between 0.6 and 1.4, and one right result in twenty was called biased.
    """
    rng = np.random.default_rng(0)
    alarms, widths = 0, []
    for _ in range(30):
        rows = dirichlet_rows(rng, [[5000, 3000, 0, 0, 0, 0, 0, 1]] * 4 + [[20, 3, 0, 0, 0, 0, 0, 0]] * 4)
        values = np.concatenate([row[0] for row in rows], axis=-1)
        gradients, slopes = (np.concatenate([row[part] for row in rows], axis=-1) for part in (2, 3))
        found = stein(values, linalg.block_diag(*(row[1] for row in rows)), gradients, slopes)
        names = [str(column) for column in range(values.shape[-1])]
        alarms += complaint(found, names, {}, "", "shifted", "widened") is not None
        widths.append(found.sd_ratio)
    assert alarms == 0
    assert np.abs(np.array(widths) - 1).max() < 0.12


def test_rare_transitions_that_are_off_are_seen():
    rng = np.random.default_rng(1)
    ((values, directions, gradients, slopes),) = dirichlet_rows(rng, [[400, 30, 0, 0]])
    flat = values.reshape(-1, 4)
    # The same draws against the gradient of another target, with one transition more to the third state.
    basis = np.linalg.svd(np.ones((1, 4)))[2][1:].T
    more = gradients + (np.array([0.0, 0.0, 1.0, 0.0]) - flat[evenly_spaced(len(flat), 32)]) @ basis
    found = stein(values, directions, more, slopes)
    shift = (flat.mean(axis=0)[2] - 2 / 435) / flat.std(axis=0)[2]
    assert found.shift[2] == pytest.approx(shift, abs=3 * found.shift_error[2]) and shift < -0.9
    assert complaint(found, list("abcd"), {}, "", "{name}", "widened") == "c"


@pytest.mark.parametrize("emission", [Gaussian(dim=2), VonMises()])
def test_derivatives_are_those_of_natural_parameters(emission):
    rng = np.random.default_rng(0)
    model = HMM(2, emission).resolve(rng.uniform(-3, 3, size=(200, emission.dim)))
    with jax.enable_x64(True):
        params = {**prior_draw(model.emission, jax.random.key(0), 2), "transition": np.array([[0.9, 0.1], [0.3, 0.7]])}
        start = {name: np.asarray(value) for name, value in model.unconstrain(params).items()}
    order = Flat.like(start)
    points = order.ravel_numpy(start) + 0.1 * rng.normal(size=(3, order.size))

    def natural(point):
        with jax.enable_x64(True):
            found = model.constrain(order.unravel(point))
        return np.concatenate([np.ravel(found[name]) for name in ("transition", *model.emission.names)])

    columns = np.arange(len(natural(points[0])))
    directions = rng.normal(size=(order.size, len(columns)))
    found = derivatives_along(model, order, points, columns, directions)
    for point, row in zip(points, found, strict=True):
        for column in columns:
            step = 1e-5 * directions[:, column]
            expected = (natural(point + step)[column] - natural(point - step)[column]) / 2e-5
            assert row[column] == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_gradients_belong_to_their_draws(known):
    natural = known.draw(2, 10)
    coordinates = unconstrained(known.model, natural)
    points, gradients = exact_gradients(coordinates, by_passes(known.model, known.sequences), 5)
    params = {name: value[0, 2] for name, value in natural.items()}
    assert points[0, :2] == pytest.approx(params["mean"])  # the draw in the middle of the first fifth
    gradient = exact(known.model, known.model.validate(params), known.sequences)[1].gradient
    np.testing.assert_allclose(
        gradients[0], np.concatenate([gradient["mean"].ravel(), gradient["transition"]]), rtol=1e-6
    )
    with pytest.raises(ModelError, match="three draws or more"):
        stein(layout(coordinates).ravel_numpy(coordinates), np.eye(4), gradients[:2], gradients[:2])


def test_names_are_those_of_the_summary(known):
    posterior = known.posterior(distorted(known, shift=0.4))
    details = {}
    reason = bias(posterior, by_passes(known.model, known.sequences), 16, details)
    assert details["shift_of"] == "mean[1]" and "mean[1]" in reason
    assert set(entries(posterior).names) == set(posterior.summary().index)


def test_entries_that_never_move_are_left_out(known):
    model = HMM(2, known.model.emission, fixed_rows={0: [0.3, 0.7]})
    natural = known.draw(2, 20)
    natural["transition"][:, :, 0] = [0.3, 0.7]
    from longhmm.posterior.posterior import Posterior

    table = entries(Posterior.from_chains(model, chains_of(model, natural)))
    assert table.names == ["transition[1, 0]", "transition[1, 1]", "mean[0]", "mean[1]"]
    np.testing.assert_array_equal(table.values[..., 2:], natural["mean"])
