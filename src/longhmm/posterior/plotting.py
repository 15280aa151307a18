"""`posterior.plot.name(...)`: the pictures of `lh.plots`, found by completion where the posterior is at hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

from longhmm.posterior.draws import Draws


class Plots:
    """Every picture of `lh.plots` as a method, without its first argument, the posterior."""

    def __init__(self, posterior: Draws) -> None:
        self._posterior = posterior

    def __dir__(self) -> list[str]:
        from longhmm.report import plots

        return sorted(plots.__all__)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from longhmm.report import plots

        if name not in plots.__all__:
            raise AttributeError(f"posterior.plot has no {name!r}; there are {', '.join(sorted(plots.__all__))}.")
        draw = getattr(plots, name)

        @wraps(draw)
        def drawn(*args: Any, **options: Any) -> Any:
            return draw(self._posterior, *args, **options)

        given = inspect.signature(draw)
        drawn.__signature__ = given.replace(parameters=list(given.parameters.values())[1:])  # type: ignore[attr-defined]
        return drawn

    def __repr__(self) -> str:
        return f"posterior.plot: {', '.join(dir(self))}"


class Plotting(Draws):
    """Draws that can be looked at."""

    @cached_property
    def plot(self) -> Plots:
        """The pictures of `lh.plots` of this posterior: `posterior.plot.forest()`."""
        return Plots(self)
