"""The genome of E. coli 536 as a sequence of four letters: stretches of different composition."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from common import PALETTE, Script

import longhmm as lh

STATES = 2
LETTERS = "ACGT"


def main() -> None:
    script = Script("genome", __doc__, ("ecoli/ecoli536.npy",), 1_000_000)
    letters = np.load(script.files[0], mmap_mode="r")[: script.most]
    model = lh.HMM(n_states=STATES, emission=lh.Categorical(4), transition_prior=lh.Sticky(stay=1000.0))
    start = {"transition": np.full((STATES, STATES), 0.001) + 0.998 * np.eye(STATES)}
    start["probs"] = np.array([[0.28, 0.22, 0.22, 0.28], [0.22, 0.28, 0.28, 0.22]])
    fit = lh.fit_em(model, letters, init=start, seed=0, progress=False)
    probs = fit.params["probs"]
    gc = probs[:, 1] + probs[:, 2]
    low, high = int(np.argmin(gc)), int(np.argmax(gc))
    stay = 1.0 / (1.0 - np.diag(fit.params["transition"]))
    chance = lh.state_probabilities(model, fit.params, letters)[:, low]

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 5), layout="constrained")
    bins = chance[: len(chance) // 1000 * 1000].reshape(-1, 1000).mean(axis=1)
    upper.fill_between(np.arange(len(bins)), bins, color=PALETTE[0], linewidth=0)
    upper.set(xlabel="thousand bases", ylabel=f"probability of the state\nwith {gc[low]:.0%} G or C", ylim=(0, 1))
    for shift, state, hue in ((-0.2, low, PALETTE[0]), (0.2, high, PALETTE[1])):
        lower.bar(np.arange(4) + shift, probs[state], 0.4, color=hue, label=f"{gc[state]:.1%} G or C")
    lower.set_xticks(range(4), list(LETTERS))
    lower.legend(frameon=False)
    script.finish(
        figure,
        f"E. coli 536, {len(letters):,} bases: stretches with {gc[low]:.1%} and {gc[high]:.1%} G or C, "
        f"{stay[low]:,.0f} and {stay[high]:,.0f} bases long on average; the poorer ones make up {chance.mean():.0%}.",
    )


if __name__ == "__main__":
    main()
