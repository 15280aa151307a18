"""What each buffer length costs in bias: the picture of the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longhmm.gradients.certificate import certificate
from longhmm.posterior.plots.style import SOFT, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior


def buffer_certificate(posterior: Posterior, data: Any, *, cells: int = 2000) -> Figure:
    """Bias and error of buffered windows against the buffer's length, at the mode (or the posterior mean).

    See `lh.certificate`, which also gives the numbers.
    """
    params = posterior.mean_params() if posterior.mode is None else posterior.mode
    figure: Figure = certificate(posterior.model, params, data, cells=cells).plot()
    figure.patch.set_alpha(0.0)
    axes = figure.axes[0]
    tidy(axes, title="", x=axes.get_xlabel(), y="error")
    # Below the rounding of a double nothing can be learnt.
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 1e-16))
    axes.grid(color=SOFT, alpha=0.2)
    return figure
