"""Solar X-ray flux, minute by minute (GOES-15): levels of activity, rare flares, missing values left as they are."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from common import PALETTE, Script

import longhmm as lh

STATES = 5
FLOOR = 2e-8  # W/m²; below are gaps, written as 1e-9, and minutes in which the earth hid the sun


def main() -> None:
    script = Script("goes", __doc__, ("goes_xrs/goes15_1min.npz",), 100_000)
    with np.load(script.files[0]) as stored:
        flux = stored["xl"][: script.most].astype(np.float64)
    logs = np.log10(np.where(flux > FLOOR, flux, np.nan))
    seen = ~np.isnan(logs)
    model = lh.HMM(n_states=STATES, emission=lh.Gaussian(), transition_prior=lh.Sticky(stay=100.0))
    fit = lh.fit_em(model, logs, restarts=4, seed=0, progress=False)
    order = np.argsort(fit.params["mean"][:, 0])
    path = np.argsort(order)[lh.decode(model, fit.params, logs)]
    means = fit.params["mean"][order, 0]
    stay = 1.0 / (1.0 - np.diag(fit.params["transition"])[order])
    visits = int(np.sum((path[1:] == STATES - 1) & (path[:-1] != STATES - 1)))

    figure, axes = plt.subplots(figsize=(11, 4), layout="constrained")
    days = np.arange(len(logs)) / 1440
    for state in range(STATES):
        here = path == state
        axes.plot(
            days[here], logs[here], ".", markersize=1, color=PALETTE[state], label=f"{10 ** means[state]:.1e} W/m²"
        )
    axes.set(xlabel="days", ylabel="log10 of flux, 0.1 to 0.8 nm")
    axes.legend(frameon=False, markerscale=8, ncol=STATES)
    script.finish(
        figure,
        f"GOES-15, {len(logs):,} minutes, {1 - seen.mean():.1%} missing: of {STATES} levels the highest, around "
        f"{10 ** means[-1]:.1e} W/m², is entered {visits} times, holds {np.mean(path[seen] == STATES - 1):.1%} of the "
        f"minutes seen, and lasts {stay[-1]:.0f} minutes on average; the lowest lasts {stay[0]:.0f}.",
    )


if __name__ == "__main__":
    main()
