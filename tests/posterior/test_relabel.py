"""Numbering of states: what may be renumbered, how, and that chains end up with the same numbers."""

import numpy as np
import numpyro.distributions as dist
import pytest

from longhmm import Emission, Gaussian, Poisson, Rates, Tied
from longhmm.backends.answers import log_likelihood
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.initialise import exchangeable, permute, state_order
from longhmm.model.transitions.dirichlet import Sticky
from longhmm.posterior import relabel
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.relabel import match_states, permute_coordinates
from longhmm.posterior.summary import convergence
from posterior.fakes import chains_of, gaussian_model, unconstrained

ORDER = np.array([2, 0, 1])


def three_states(seed=0):
    rng = np.random.default_rng(seed)
    model = HMM(3, Gaussian(dim=2, mean=dist.Normal(0, 5), covariance=dist.InverseWishart(4.0, scale_tril=np.eye(2))))
    factor = rng.normal(size=(3, 2, 2))
    params = {
        "transition": rng.dirichlet(np.ones(3), size=3),
        "mean": rng.normal(0, 2, (3, 2)),
        "covariance": factor @ factor.swapaxes(1, 2) + np.eye(2),
    }
    return model, params


def test_states_are_numbered_by_location_then_by_self_transition():
    model = gaussian_model(3)
    transition = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.4, 0.4, 0.2]])
    assert state_order(model, {"transition": transition, "mean": [3.0, 1.0, 2.0]}).tolist() == [1, 2, 0]
    assert state_order(model, {"transition": transition, "mean": [3.0, 1.0, 1.0]}).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    "model",
    [
        gaussian_model(3, transition_prior=np.array([[1.0, 1, 1], [1, 1, 1], [2, 1, 1]])),
        gaussian_model(3, fixed_rows={0: [0.5, 0.25, 0.25]}),
        gaussian_model(3, initial=[0.5, 0.25, 0.25]),
        HMM(3, Gaussian(sd=1.0, mean=dist.Normal(np.array([0.0, 1.0, 2.0]), 1.0))),
        HMM(3, Tied(Gaussian(sd=1.0, mean=dist.Normal(np.array([0.0, 1.0]), 1.0)), levels=(0, 1, 1))),
    ],
)
def test_states_that_the_model_tells_apart_keep_their_numbers(model):
    assert not exchangeable(model)
    mean = np.array([3.0, 2.0, 1.0])[: model.emission.parameters(3)["mean"].shape[0]]
    assert state_order(model, {"transition": np.full((3, 3), 1 / 3), "mean": mean}).tolist() == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, {"initial": "stationary"}, {"transition_prior": Sticky(5.0)}])
def test_states_that_nothing_tells_apart_are_exchangeable(options):
    assert exchangeable(gaussian_model(3, **options))


def test_renumbering_leaves_the_likelihood_alone():
    model, params = three_states()
    params["initial"] = np.array([0.7, 0.2, 0.1])
    moved = permute(model, params, ORDER)
    assert moved["transition"][0, 1] == params["transition"][2, 0]
    data = np.random.default_rng(1).normal(0, 3, (50, 2))
    assert log_likelihood(model, moved, data) == pytest.approx(log_likelihood(model, params, data), rel=1e-12)
    back = permute(model, moved, np.argsort(ORDER))
    assert all(np.array_equal(back[name], params[name]) for name in params)


def test_leading_axes_are_kept():
    model, params = three_states()
    stacked = {name: np.stack([np.stack([value, value + 1])] * 5) for name, value in params.items()}
    moved = permute(model, stacked, ORDER)
    for name, value in params.items():
        assert np.array_equal(moved[name][3, 1], permute(model, {**params, name: value + 1}, ORDER)[name])


def test_coordinates_are_renumbered_as_natural_parameters_are():
    model, params = three_states()
    natural = {name: value[None, None] for name, value in params.items()}
    expected = unconstrained(model, permute(model, natural, ORDER))
    found = permute_coordinates(model, unconstrained(model, natural), ORDER)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-12)


def test_coordinates_of_tiny_probabilities_survive():
    """A probability of exp(-1600) is zero as a number but not as a coordinate."""
    model = gaussian_model(2)
    far = {"transition": np.array([-1200.0, 3.0]), "mean": np.zeros(2)}
    once = permute_coordinates(model, far, np.array([1, 0]))
    np.testing.assert_allclose(permute_coordinates(model, once, np.array([1, 0]))["transition"], [-1200.0, 3.0])
    assert abs(once["transition"]).max() == pytest.approx(1200.0)


def test_tied_levels_move_with_their_states():
    model = HMM(4, Tied(Poisson(rate=dist.Gamma(1.0, 1.0)), levels=(0, 0, 1, 1)))
    rng = np.random.default_rng(2)
    params = {"transition": rng.dirichlet(np.ones(4), size=4), "rate": np.array([1.0, 6.0])}
    moved = permute(model, params, np.array([3, 2, 1, 0]))
    assert moved["rate"].tolist() == [6.0, 1.0]
    data = rng.poisson(3.0, 40)
    assert log_likelihood(model, moved, data) == pytest.approx(log_likelihood(model, params, data), rel=1e-12)
    with pytest.raises(ModelError, match="share a level"):
        permute(model, params, np.array([0, 2, 1, 3]))


def tied_model(levels, **options):
    return HMM(len(levels), Tied(Gaussian(sd=1.0, mean=dist.Normal(0, 1)), levels), **options)


def stays(*chances):
    """`(K, K)`, with these probabilities to stay."""
    stay, n = np.array(chances), len(chances)
    return np.where(np.eye(n, dtype=bool), stay, ((1 - stay) / (n - 1))[:, None])


def test_states_of_a_level_go_by_the_probability_to_stay():
    """Levels of as many states go by location; one state cannot take the place of two."""
    params = {"transition": stays(0.5, 0.9, 0.6), "mean": np.array([3.0, 2.0])}
    assert state_order(tied_model((0, 1, 1)), params).tolist() == [0, 2, 1]
    params = {"transition": stays(0.5, 0.9, 0.7, 0.6), "mean": np.array([3.0, 2.0])}
    assert state_order(tied_model((0, 0, 1, 1)), params).tolist() == [3, 2, 0, 1]
    # In a chain of states, 1 - 2 - 3 - 4, neighbours can only change places with the other two.
    chain = Rates("1 <-> 2 <-> 3 <-> 4", dt=1.0)
    assert state_order(tied_model((0, 1, 1, 0), transitions=chain), params).tolist() == [0, 1, 2, 3]
    params["transition"] = stays(0.7, 0.6, 0.9, 0.5)
    assert state_order(tied_model((0, 1, 1, 0), transitions=chain), params).tolist() == [3, 2, 1, 0]
    assert state_order(tied_model((0, 0, 1, 1), transitions=chain), params).tolist() == [3, 2, 1, 0]


def test_chains_that_call_the_states_of_a_level_differently_are_brought_together():
    model, rng, levels = tied_model((0, 0, 1)), np.random.default_rng(0), np.array([-1.0, 1.0])
    one = stays(0.6, 0.95, 0.9)
    both = [one, permute(model, {"transition": one, "mean": levels}, np.array([1, 0, 2]))["transition"]]
    natural = {
        "transition": np.stack([[rng.dirichlet(500 * row, 100) for row in each] for each in both]).swapaxes(1, 2),
        "mean": levels + 0.1 * rng.normal(size=(2, 100, 2)),
    }
    posterior = Posterior.from_chains(model, chains_of(model, natural))
    assert posterior.settings["state_order"] == [[0, 1, 2], [1, 0, 2]]
    found = np.diagonal(posterior.draws["transition"].mean("draw"), axis1=1, axis2=2)
    np.testing.assert_allclose(found, [[0.6, 0.95, 0.9]] * 2, atol=0.02)


def test_an_order_that_is_no_permutation_is_refused():
    model, params = three_states()
    with pytest.raises(ModelError, match="permutation of the 3 states"):
        permute(model, params, np.array([0, 0, 1]))


def test_matching_finds_the_same_states_again():
    """Also where first components say nothing, and scales differ wildly between parameters."""
    model, params = three_states()
    params["mean"] = np.array([[1000.0, -1.0], [1000.0, 0.5], [1000.0, 2.5]])
    params["covariance"] = np.stack([0.1 * np.eye(2)] * 3)
    rng = np.random.default_rng(3)
    shuffled = permute(model, params, ORDER)
    shuffled["mean"] = shuffled["mean"] + 0.1 * rng.normal(size=(3, 2))
    shuffled["covariance"] = shuffled["covariance"] * rng.uniform(0.9, 1.1, (3, 1, 1))
    assert match_states(model, params, shuffled).tolist() == np.argsort(ORDER).tolist()


def test_matching_without_a_way_to_draw_uses_the_parameters():
    class Silent(Emission):
        def __init__(self):
            super().__init__(None, loc=dist.Normal(0, 1))

        def log_density(self, params, y):
            return -abs(y[..., None] - params["loc"])

    model = HMM(3, Silent())
    params = {"transition": np.full((3, 3), 1 / 3), "loc": np.array([0.0, 1.0, 2.0])}
    shuffled = permute(model, params, ORDER)
    assert match_states(model, params, shuffled).tolist() == np.argsort(ORDER).tolist()


def test_states_that_hardly_moved_need_no_divergence(monkeypatch):
    """However alike their spreads are; states that changed places, or moved further than they are apart, do need it."""
    asked, answer = [], relabel._divergences
    monkeypatch.setattr(relabel, "_divergences", lambda *given: asked.append(1) or answer(*given))
    model, order = gaussian_model(), np.array([0, 1])
    params = {"transition": np.full((2, 2), 0.5), "mean": np.array([-1.0, 1.0]), "sd": np.array([0.50, 0.51])}
    near = {**params, "mean": params["mean"] + 0.01, "sd": params["sd"][::-1]}
    assert match_states(model, params, near, otherwise=order).tolist() == [0, 1]
    assert not asked
    swapped = {name: value[::-1] for name, value in near.items()}
    assert match_states(model, params, swapped, otherwise=order).tolist() == [1, 0]
    assert match_states(model, params, near).tolist() == [0, 1]  # nothing to keep
    match_states(model, params, {**params, "mean": params["mean"] + 0.3}, otherwise=order)
    assert len(asked) == 3


def two_state_draws(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "transition": rng.dirichlet([30.0, 5.0], size=(4, 200, 2)) * 1.0,
        "mean": np.array([-1.0, 1.0]) + 0.1 * rng.normal(size=(4, 200, 2)),
    }


@pytest.mark.parametrize("with_mode", [True, False])
def test_permuted_chains_are_brought_into_one_order(with_mode):
    model = gaussian_model()
    natural = two_state_draws()
    swap = np.array([1, 0])
    mode = {name: value[0].mean(axis=0) for name, value in natural.items()}
    mode["transition"] = mode["transition"] / mode["transition"].sum(axis=1, keepdims=True)
    mixed = {name: value.copy() for name, value in natural.items()}
    for chain in (0, 2):
        for name, value in permute(model, {name: value[chain] for name, value in natural.items()}, swap).items():
            mixed[name][chain] = value
    fields = {}
    if with_mode:
        turned = unconstrained(model, {name: value[None, None] for name, value in permute(model, mode, swap).items()})
        fields["mode"] = {name: value[0, 0] for name, value in turned.items()}
    posterior = Posterior.from_chains(model, chains_of(model, mixed, **fields))
    straight = Posterior.from_chains(model, chains_of(model, natural))
    np.testing.assert_allclose(posterior.draws["transition"], natural["transition"], rtol=1e-9)
    np.testing.assert_allclose(posterior.draws["mean"], natural["mean"], rtol=1e-9)
    for name in posterior.unconstrained:
        np.testing.assert_allclose(posterior.unconstrained[name], straight.unconstrained[name], atol=1e-9)
    assert float(convergence(posterior.draws)["r_hat"]["mean"].max()) < 1.05
    assert posterior.settings["state_order"] == [[1, 0], [0, 1], [1, 0], [0, 1]]
    if with_mode:
        np.testing.assert_allclose(posterior.mode["mean"], mode["mean"], rtol=1e-9)


def test_information_is_renumbered_with_the_mode():
    model = gaussian_model()
    natural = {name: value[:, :, ::-1] for name, value in two_state_draws().items()}
    natural["transition"] = natural["transition"][..., ::-1]
    point = {name: value[0, 0] for name, value in unconstrained(model, natural).items()}
    root = np.random.default_rng(0).normal(size=(4, 4))
    information = root @ root.T
    posterior = Posterior.from_chains(model, chains_of(model, natural, mode=point, information=information))
    assert posterior.settings["state_order"][0] == [1, 0]
    before = np.concatenate([point["mean"].ravel(), point["transition"]])
    moved = permute_coordinates(model, point, np.array([1, 0]))
    after = np.concatenate([moved["mean"].ravel(), moved["transition"]])
    assert after @ posterior.information @ after == pytest.approx(before @ information @ before, rel=1e-10)
    assert not np.allclose(posterior.information, information)


def test_known_states_keep_their_numbers():
    model = gaussian_model()
    natural = {name: value[:, :, ::-1].copy() for name, value in two_state_draws().items()}
    posterior = Posterior.from_chains(model, chains_of(model, natural), {"has_states": True})
    np.testing.assert_allclose(posterior.draws["mean"], natural["mean"])
