"""The genome of E. coli 536 as a sequence of four letters: stretches of different composition.

Single letters say little about the state, so that clusters of them are no start: the fit begins with one composition
poor and one rich in G and C, and with long stretches.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from common import PALETTE, Script, spread, verdict

import longhmm as lh

LETTERS = "ACGT"
START = {
    "transition": [[0.999, 0.001], [0.001, 0.999]],
    "probs": [[0.28, 0.22, 0.22, 0.28], [0.22, 0.28, 0.28, 0.22]],
}


def main() -> None:
    script = Script("genome", __doc__, ("ecoli/ecoli536.npy",))
    letters = np.load(script.files[0], mmap_mode="r")[: script.most]
    model = lh.HMM(n_states=2, emission=lh.Categorical(len(LETTERS)), transition_prior=lh.Sticky(stay=1000.0))
    posterior = lh.sample(model, letters, init=START, draws=script.draws, seed=0)
    probs = posterior.draws["probs"].stack(all=("chain", "draw")).transpose("all", ...).to_numpy()
    gc = probs[:, :, LETTERS.index("G")] + probs[:, :, LETTERS.index("C")]
    low, high = np.argsort(gc.mean(axis=0))
    stay = 1 / (1 - np.stack([posterior.draws["transition"][:, :, each, each] for each in (low, high)]))
    chance = posterior.state_probabilities(letters, draws=4)[:, low]

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 5.5), layout="constrained", height_ratios=(3, 2))
    width = max(len(chance) // 1000, 1)
    bins = chance[: len(chance) // width * width].reshape(-1, width).mean(axis=1)
    upper.fill_between(np.arange(len(bins)) * width / 1e6, bins, color=PALETTE[0], linewidth=0)
    upper.set(xlabel="million bases", ylabel="probability of the state\npoor in G and C", ylim=(0, 1))
    upper.set_title(f"mean over {width:,} bases each", fontsize=10)
    ends = np.quantile(probs, (0.05, 0.95), axis=0)
    for shift, state, hue, name in ((-0.2, low, PALETTE[0], "poor"), (0.2, high, PALETTE[1], "rich")):
        middle = probs[:, state].mean(axis=0)
        bars = np.abs(ends[:, state] - middle)
        lower.bar(np.arange(4) + shift, middle, 0.4, yerr=bars, capsize=3, color=hue, label=f"{name} in G and C")
    lower.set_xticks(range(4), list(LETTERS))
    lower.set(xlabel="base", ylabel="probability")
    lower.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    script.finish(
        figure,
        f"E. coli 536, {len(letters):,} bases: stretches with {spread(100 * gc[:, low], '.2f')} % and "
        f"{spread(100 * gc[:, high], '.2f')} % G or C, {spread(stay[0], ',.0f')} and {spread(stay[1], ',.0f')} bases "
        f"long on average; the poorer ones make up {chance.mean():.1%}. Verdict: {verdict(posterior)}.",
    )


if __name__ == "__main__":
    main()
