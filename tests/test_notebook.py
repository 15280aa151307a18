"""A bar in a notebook without ipywidgets: what IPython is told to show."""

from longhmm.notebook import in_notebook


def test_terminals_keep_their_own():
    assert not in_notebook()
