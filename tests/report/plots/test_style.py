"""What all pictures share: colours, axes, numbers, and texts without formulas."""

import io

import numpy as np
import pytest

from longhmm import plots
from longhmm.report.plots.style import PALETTE, digits_for, few_ticks, new_figure, number, plain, time_axis, with_sd
from posterior.fakes import gaussian_model, small_posterior
from report.plots.rendering import rendered

DARK = "#14171b"  # the ground of the page at night


def luminance(hue: str) -> float:
    parts = np.array([int(hue[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_seen_by_day_and_by_night():
    assert all(contrast(each, ground) >= 3.0 for each in PALETTE for ground in ("#ffffff", DARK))


def test_the_first_colours_differ_for_readers_who_see_no_red_or_no_green():
    # Viénot's reduction of linear RGB for protanopes and deuteranopes, as 3 x 3 matrices
    reductions = [
        np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
        np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
    ]
    linear = np.array([[(int(hue[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)] for hue in PALETTE[:4]])
    for reduction in reductions:
        seen = np.clip(linear @ reduction.T, 0, 1) ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(4, 1)]
        assert apart.min() > 0.17  # as far apart as two greys that differ by 25 of 255


def test_figures_are_on_white_whatever_is_behind_them():

    from matplotlib.image import imread

    file = io.BytesIO()
    plots.transition_graph(small_posterior(gaussian_model())).savefig(file, format="png")
    corner = imread(io.BytesIO(file.getvalue()))[0, 0]
    np.testing.assert_array_equal(corner, [1, 1, 1, 1])


def test_axes_of_time():
    assert time_axis(100, None) == (1.0, "sample")
    for length, label in ((1, "µs"), (1e5, "ms"), (1e8, "s"), (1e9, "min"), (1e11, "h")):
        assert time_axis(length, 1e6)[1] == f"time ({label})"
    scale, _ = time_axis(1e5, 1e6)
    assert scale * 1000 == pytest.approx(1.0)  # a thousand samples at 1 MHz: one millisecond


def test_texts_are_never_formulas():
    figure = new_figure(2, 2)
    figure.subplots().set_title(plain(r"$\nonsense{ $"))
    rendered(figure)


def test_logarithmic_ticks_are_plain_numbers():
    axes = new_figure(4, 1).subplots()
    axes.set(xscale="log", xlim=(1.5, 90))
    few_ticks(axes.xaxis)
    inside = [tick for tick in axes.get_xticks() if 1.5 <= tick <= 90]
    assert inside == [2, 5, 10, 20, 50] and not axes.xaxis.get_ticklocs(minor=True).size


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.0, 4, "0"), (136.944, 5, "136.94"), (136.9, 5, "136.90"), (-0.00083, 2, "−0.00083"), (9.999, 2, "10"),
        (1234567.0, 3, "1,230,000"), (4.2e-9, 2, "4.2×10⁻⁹"), (-3e12, 1, "−3×10¹²"), (float("nan"), 3, "–"),
        (float("inf"), 3, "∞"),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(value, digits, shown):
    assert number(value, digits) == shown


def test_digits_follow_the_uncertainty():
    assert with_sd(136.9442, 0.0097) == "136.9442 ± 0.0097"
    assert with_sd(138.8, 34.0) == "139 ± 34"
    assert with_sd(3.0, 0.0) == "3.000"
    low, high = 136.928, 136.960
    assert number(low, digits_for(low, high)) != number(high, digits_for(low, high))
