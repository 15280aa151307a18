"""The kills of `make soak` in small."""

import pytest

from soak.cluster_kills import kill_workers
from soak.kills import kill_fits, kill_writers


def test_a_process_killed_while_it_writes_loses_nothing(tmp_path):
    assert kill_writers(tmp_path, 4).lost == []


@pytest.mark.slow
def test_a_fit_killed_at_random_moments_ends_in_the_same_draws(tmp_path):
    outcome = kill_fits(tmp_path, 3)
    assert outcome == (3, [])


@pytest.mark.slow
def test_workers_killed_at_random_moments_change_no_answer(tmp_path):
    pytest.importorskip("distributed")
    assert kill_workers(tmp_path, 5, length=200_000) == (5, [])
