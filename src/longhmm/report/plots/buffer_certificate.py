"""What each buffer length costs in bias: the picture of the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.gradients.certificate import certificate
from longhmm.report.plots.style import SOFT, legend, tidy

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
    axes.set_title("")
    tidy(axes, x=axes.get_xlabel(), y="error")
    legend(axes)
    # Below the rounding of a double nothing can be learnt.
    seen = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines if line.get_marker() != "None"])
    seen = seen[np.isfinite(seen)]
    axes.set_ylim(max(seen.min(initial=1.0) / 3, 1e-16), 3 * seen.max(initial=1e-15))
    axes.grid(color=SOFT, alpha=0.2)
    return figure
