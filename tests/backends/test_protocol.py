"""Every backend is what the protocol says, so that whoever asks one may be given another."""

import inspect

import pytest

from longhmm.backends.evaluate import BACKENDS
from longhmm.backends.protocol import Backend

QUESTIONS = {name: each for name, each in vars(Backend).items() if inspect.isfunction(each) and name[0] != "_"}


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_it_answers_every_question_and_declares_what_it_is(backend):
    for name, kind in inspect.get_annotations(Backend, eval_str=True).items():
        assert type(getattr(backend, name)) is kind, name
    for name, asked in QUESTIONS.items():
        _, *wanted = inspect.signature(asked).parameters
        given = inspect.signature(getattr(backend, name)).parameters
        assert list(given)[: len(wanted)] == wanted, name
        assert all(given[extra].default is None for extra in list(given)[len(wanted) :]), name
