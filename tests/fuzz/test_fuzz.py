"""Every tenth case of the fuzz suite; `make soak` runs them all."""

import os

import pytest

from fuzz.files import code_case
from fuzz.outcome import Case, Lost, judge
from fuzz.suite import QUICK, run_suite, seconds_for
from longhmm.errors import LongHMMError


@pytest.mark.parametrize("kind", QUICK)
def test_odd_input_works_or_ends_in_one_sentence(kind):
    make, count = QUICK[kind]
    result = run_suite(make, range(3, count, 11), seconds_for(kind))
    assert result.lost == []
    assert result.sentences > 0 and result.cases > count / 12


def test_no_file_runs_code():
    assert run_suite(code_case, range(12)).lost == []


def test_the_judge_sees_what_is_wrong(tmp_path):
    """A suite that calls everything good would be worth nothing."""
    import time
    import warnings

    def storm(_):
        for number in range(10):
            warnings.warn(f"wrong {number}", stacklevel=1)

    def two_lines(_):
        raise LongHMMError("something is wrong here\nand here")

    def traceback(_):
        raise KeyError("x")

    def lost(_):
        raise Lost("the code was run")

    for run in (storm, two_lines, traceback, lost, lambda _: time.sleep(5)):
        assert judge(Case("bad", run), tmp_path, seconds=1)[0] == "lost"
    assert judge(Case("good", lambda _: None), tmp_path) == ("worked", "")

    def refused(_):
        raise LongHMMError("data must be longer, got 0.")

    assert judge(Case("refused", refused), tmp_path)[0] == "sentence"


def test_the_trap_works_where_pickles_are_allowed(tmp_path):
    """The mark is left if a pickle is opened, so that its absence means something."""
    import pickle

    from fuzz.files import Code

    mark = tmp_path / "mark"
    assert pickle.loads(pickle.dumps(Code(mark))) == 0 and mark.exists()
    os.remove(mark)
