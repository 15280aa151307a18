"""Reading ahead: in order, not too far, errors in their turn."""

import threading

import pytest

from longhmm.data.executor import ahead
from longhmm.errors import DataError


def test_things_come_in_order_and_are_made_by_another_thread():
    threads = set()

    def make(number):
        threads.add(threading.current_thread().name)
        return number**2

    assert list(ahead(make, 7)) == [number**2 for number in range(7)]
    assert list(ahead(make, 0)) == []
    assert threads and threading.current_thread().name not in threads


def test_no_more_than_the_depth_is_made_ahead():
    made = []
    things = ahead(lambda number: made.append(number) or number, 100, depth=2)
    for expected in range(10):
        assert next(things) == expected
        assert len(made) <= expected + 4
    things.close()
    assert len(made) <= 13
    assert not any(thread.name.startswith("longhmm-prefetch") for thread in threading.enumerate())


def test_an_error_is_raised_in_its_turn():
    def make(number):
        if number == 2:
            raise DataError("row 2 is gone")
        return number

    things = ahead(make, 5)
    assert [next(things), next(things)] == [0, 1]
    with pytest.raises(DataError, match="row 2"):
        next(things)
