"""Solar X-ray flux, minute by minute (GOES-15): levels of activity, rare flares, missing values left as they are."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from common import PALETTE, Script

import longhmm as lh

STATES = 4


def main() -> None:
    script = Script("goes", __doc__, ("goes_xrs/goes15_1min.npz",), 100_000)
    with np.load(script.files[0]) as stored:
        flux = stored["xl"][: script.most].astype(np.float64)
    logs = np.log10(np.where(flux > 0, flux, np.nan))  # a flux of zero is a gap in the record
    missing = np.isnan(logs).mean()
    model = lh.HMM(n_states=STATES, emission=lh.StudentT(df=4.0), transition_prior=lh.Sticky(stay=100.0))
    posterior = lh.sample(model, logs, chains=4, draws=200, seed=0, progress=False)
    path = posterior.decode(logs)
    means = posterior.draws["loc"].mean(("chain", "draw")).values
    stay = 1.0 / (1.0 - np.diagonal(posterior.draws["transition"].values, axis1=-2, axis2=-1))
    low, high = np.quantile(stay[..., -1], [0.025, 0.975])
    visits = np.sum((path[1:] == STATES - 1) & (path[:-1] != STATES - 1))

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
        f"GOES-15, {len(logs):,} minutes, {missing:.1%} missing: of {STATES} levels the highest, around "
        f"{10 ** means[-1]:.1e} W/m², is entered {visits} times, holds {np.mean(path == STATES - 1):.1%} of the time, "
        f"and lasts {low:.0f} to {high:.0f} minutes on average (95 %).",
    )


if __name__ == "__main__":
    main()
