"""Which backends there are, in which order they are asked, and which numbers go to which."""

import inspect

from longhmm.backends.evaluate import BACKENDS
from longhmm.backends.protocol import Backend

QUESTIONS = {name: each for name, each in vars(Backend).items() if inspect.isfunction(each) and name[0] != "_"}


def test_there_are_three_and_the_last_serves_everywhere():
    assert [backend.name for backend in BACKENDS] == ["cpp", "pallas", "reference"]
    assert set(QUESTIONS) == {"supports", "statistics", "paths"}
