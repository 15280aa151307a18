"""Verdicts on channels, numbers of states and variational posteriors follow the numbers, whatever they are."""

import numpy as np
import pytest

from longhmm_reproduction import claims, figures, report
from reproduction import made_up

NOISE = np.random.default_rng(0).normal(scale=0.01, size=(5, 40))


def table(*means):
    """Blocks by number of states, the noise of each its own."""
    return {each + 1: mean + NOISE[each] for each, mean in enumerate(means)}


CLEAR = table(1.0, 2.0, 3.0, 4.0)
FASTER = {"lognormal": [10.0, 12.0], "gaussian": [100.0, None]}


@pytest.mark.parametrize("which", ["lognormal", "gaussian"])
def test_one_rule_selects_for_both_models(which):
    """The fewest states that are not significantly worse than the best: more of them must earn their keep."""
    expected = {"lognormal": 2, "gaussian": 4}[which]
    two = table(1.0, 2.0, 2.001, 2.0)  # two are as good as any
    found = made_up.lognormal({each: two for each in ("lognormal", "gaussian")}, FASTER)
    claim = next(each for each in claims.judge(found) if each.sentence.startswith(f"the {which} model selects"))
    assert f"K = {expected} of 1 to 4" in claim.sentence and "selected K = 2;" in claim.evidence
    assert claim.verdict == (claims.CONFIRMED if which == "lognormal" else claims.OPEN)


@pytest.mark.parametrize(
    ("means", "verdict"),
    [((1.0, 2.0, 3.0, 4.0), claims.CONFIRMED), ((1.0, 2.0, 4.0, 3.0), claims.REFUTED)],
)
def test_more_states_are_selected_where_they_gain(means, verdict):
    found = made_up.lognormal({"lognormal": CLEAR, "gaussian": table(*means)}, FASTER)
    verdicts = [claim.verdict for claim in claims.judge(found)]
    assert verdicts[:2] == [claims.REFUTED, verdict]


def test_a_number_beyond_those_of_the_paper_is_told_but_not_selected():
    found = made_up.lognormal({"lognormal": CLEAR, "gaussian": table(1.0, 2.0, 3.0, 4.0, 5.0)}, FASTER)
    found["blocks"]["lognormal"]["5"] = (2.0 + NOISE[4]).tolist()
    claim = claims.judge(found)[1]
    assert claim.verdict == claims.CONFIRMED and "K = 5, which the paper did not try, gains 1 ±" in claim.evidence


@pytest.mark.parametrize(
    ("gaussian", "verdict", "evidence"),
    [
        ([100.0, None], claims.CONFIRMED, "10 to 12 against 1 of 2 chains not in 1,000 iterations"),
        ([1.0, 2.0], claims.REFUTED, "10 to 12 against 1 to 2 iterations"),
        ([11.0, 200.0], claims.OPEN, "10 to 12 against 11 to 200 iterations"),
    ],
)
def test_converging_faster_is_judged_by_iterations(gaussian, verdict, evidence):
    iterations = {"lognormal": [10.0, 12.0], "gaussian": gaussian}
    found = claims.judge(made_up.lognormal({"lognormal": CLEAR, "gaussian": CLEAR}, iterations))
    about = [claim for claim in found if "sooner than the Gaussian" in claim.sentence]
    assert [claim.verdict for claim in about] == [verdict] * 2 and about[0].evidence == evidence


@pytest.mark.parametrize(
    ("ratios", "undecided", "verdict"),
    [
        ((30.0, 35.0, 28.0, 40.0), 0, claims.CONFIRMED),
        ((0.1, 0.12, 0.09, 0.1), 0, claims.REFUTED),
        ((0.5, 2.0, 1.0, 1.1), 0, claims.OPEN),
        ((30.0, 35.0, 28.0), 1, claims.CONFIRMED),  # one bad start decides nothing
        ((30.0, 35.0), 2, claims.OPEN),
        ((), 4, claims.OPEN),
    ],
)
def test_speed_is_judged_over_chains(ratios, undecided, verdict):
    faster, thousand = claims.judge(made_up.ion(*ratios, undecided=undecided))
    assert faster.verdict == verdict
    # What was measured elsewhere neither confirms nor refutes a number.
    assert thousand.verdict == claims.OPEN and thousand.evidence.startswith("measured on substitutes")


@pytest.mark.parametrize(("ratio", "verdict"), [(900.0, claims.CONFIRMED), (40.0, claims.REFUTED)])
def test_on_the_papers_recording_the_number_is_judged(ratio, verdict):
    found = made_up.ion(ratio, 1.1 * ratio, 0.9 * ratio, substitute=False)
    assert claims.judge(found)[-1].verdict == verdict


def test_chains_that_never_arrived_are_told():
    found = made_up.ion(30.0, 35.0, 40.0, at_least=1, undecided=1)
    assert "3 chains, 1 of them at least; 1 on windows never arrived)" in claims.judge(found)[0].evidence


@pytest.mark.parametrize(
    ("missing", "rms", "verdict"),
    [
        ([0.004, 0.005, 0.0045], 0.1, claims.CONFIRMED),
        ([-0.004, -0.005, -0.0045], 0.1, claims.REFUTED),
        ([0.004, -0.005, 0.001], 0.1, claims.OPEN),
        ([0.004], 0.1, claims.OPEN),  # a single data set, however many pairs it has
        ([0.004, 0.005, 0.0045], 0.01, claims.OPEN),  # hardly any correlation to underestimate
    ],
)
def test_correlations_are_judged_over_data_sets(missing, rms, verdict):
    found = claims.judge(made_up.variational(missing, [0.9] * len(missing), rms))
    assert found[0].verdict == verdict and f"over {len(missing)} data sets" in found[0].evidence


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [([0.9, 0.91, 0.89], claims.CONFIRMED), ([1.1, 1.11, 1.09], claims.REFUTED), ([0.9, 1.1, 1.0], claims.OPEN)],
)
def test_standard_deviations_are_judged_with_the_smallest_told(ratios, verdict):
    claim = claims.judge(made_up.variational([0.0, 0.0, 0.0], ratios))[1]
    assert claim.verdict == verdict and "0.30 at least" in claim.evidence


@pytest.mark.parametrize(
    "found",
    [
        made_up.ion(30.0, 35.0),
        made_up.lognormal({"lognormal": CLEAR, "gaussian": CLEAR}, FASTER),
        made_up.variational([0.1, 0.2], [0.9, 0.8]),
    ],
    ids=lambda found: found["experiment"],
)
def test_every_outcome_has_a_figure_and_a_page(found):
    figure = figures.draw(found)
    axes = figure.get_axes()
    assert len(axes) == {"ion": 8, "lognormal": 3, "variational": 2}[found["experiment"]]
    assert all(each.get_xlabel() or each.get_ylabel() or each.get_title(loc="left") for each in axes)
    page = report.as_page(found, "stem")
    assert page.count("**") == 2 * len(claims.judge(found))
    assert ("Substitutes for the paper's alamethicin" in page) == (found["experiment"] == "ion")
