"""Pictures are methods of the posterior."""

import inspect
import pydoc

import pytest

import longhmm as lh
from longhmm import plots
from posterior.fakes import known_states


@pytest.fixture(scope="module")
def known():
    return known_states(400)


@pytest.fixture(scope="module")
def posterior(known):
    return known.posterior()


def test_pictures_are_methods_of_the_posterior_with_real_signatures(posterior):
    assert set(plots.__all__) <= set(dir(posterior.plot))
    own, free = (inspect.signature(each) for each in (posterior.plot.dwell_times, lh.plots.dwell_times))
    assert list(own.parameters) == list(free.parameters)[1:] and own.return_annotation == free.return_annotation
    assert posterior.plot.dwell_times.__doc__ == lh.plots.dwell_times.__doc__
    assert "dwell_times(events" in pydoc.plain(pydoc.render_doc(posterior.plot.dwell_times))
    circles = [
        each.get_radius() for each in posterior.plot.transition_graph().axes[0].patches if hasattr(each, "get_radius")
    ]
    assert len(circles) == 2
    with pytest.raises(AttributeError, match=r"posterior\.plot has no 'pie'; there are along, amplitudes"):
        posterior.plot.pie  # noqa: B018
