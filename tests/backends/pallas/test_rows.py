"""Rows of every kind in the fused GPU kernel, run without a GPU, against the reference in double precision."""

from collections.abc import Callable
from functools import partial

import pytest

from backends.pallas.problems import PER_CHUNK, Problem, categories, check, counts, gaussian, quickly, windows
from longhmm.backends.pallas import windows as pallas
from longhmm.backends.pallas.plan import Config
from longhmm.backends.protocol import Boundary, ChunkStatistics
from longhmm.data.layout import Layout

SPLIT, LOOPED = Config(splits=4, tile=2), Config(held=False, splits=4, tile=2)


@pytest.mark.parametrize(
    ("made", "config"),
    [
        (partial(gaussian, 1, 1, missing=False), None),
        pytest.param(partial(gaussian, 2, 2, kind="diagonal"), None, marks=pytest.mark.slow),
        (partial(gaussian, 3, 3), SPLIT),
        pytest.param(partial(gaussian, 4, 2), None, marks=pytest.mark.slow),
        pytest.param(partial(gaussian, 8, 2), None, marks=pytest.mark.slow),
        pytest.param(partial(gaussian, 17, 1, missing=False), None, marks=pytest.mark.slow),
        (partial(counts, 3), LOOPED),
        (partial(categories, 3), None),
    ],
    ids=["one state", "diagonal", "split", "four states", "eight states", "many states", "poisson", "categories"],
)
def test_every_window_equals_the_reference(
    made: Callable[[], Problem], config: Config | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, layout = made(), windows()
    if config is not None:
        monkeypatch.setattr(pallas, "config_for", lambda n: config)

    @quickly
    def run(narrow: Problem, layout: Layout) -> ChunkStatistics:
        return pallas.statistics(narrow.potentials, layout, Boundary(start=narrow.start), None, PER_CHUNK)

    check(run(problem.narrow(), layout), problem.expected(layout, PER_CHUNK))
