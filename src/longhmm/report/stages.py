"""What a page is waiting for while it is made: decoding, then one drawing after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from longhmm.progress import Bar

_BAR: ContextVar[Bar | None] = ContextVar("bar", default=None)


@contextmanager
def in_stages(wanted: bool = True) -> Iterator[None]:
    """Show a bar with the stage that is under way, if it takes longer than a moment."""
    with Bar(wanted) as bar:
        token = _BAR.set(bar)
        try:
            yield
        finally:
            _BAR.reset(token)


def stage(text: str) -> None:
    """Say what is being done now, where somebody listens."""
    bar = _BAR.get()
    if bar is not None:
        bar.phase(text)
