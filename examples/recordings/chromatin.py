"""Ten chromatin marks along chromosome 11 in two cell lines: states by the marks they carry, shared by both.

By expectation maximisation, without intervals: on these 1.3 million bins with 90 parameters, several of them chances of
moves that never happen, `lh.sample` had not finished after nine minutes on two busy cores.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from common import PALETTE, Script

import longhmm as lh

STATES = 6
CELLS = ("GM12878", "K562")


def main() -> None:
    script = Script("chromatin", __doc__, tuple(f"chromhmm/{cell}_chr11.npz" for cell in CELLS))
    sequences, marks = [], []
    for file in script.files:
        with np.load(file) as stored:
            sequences.append(stored["X"][: script.most])
            marks = [str(mark) for mark in stored["marks"]]
    model = lh.HMM(n_states=STATES, emission=lh.Bernoulli(dim=len(marks)))
    fit = lh.fit_em(model, sequences, restarts=4, seed=0)
    path = lh.decode(model, fit.params, sequences)
    parts = np.split(path, [len(sequences[0])])
    shares = np.array([np.bincount(each, minlength=STATES) / len(each) for each in parts])
    # From the state with fewest marks to that with most, and each by the three marks that lead it.
    order = np.argsort(fit.params["probs"].sum(axis=1))
    probs, shares = fit.params["probs"][order], shares[:, order]
    names = [", ".join(marks[mark] for mark in np.argsort(-each)[:3]) for each in probs]
    names[0] = "hardly any"

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=(2, 1), sharey=True)
    shown = left.imshow(probs, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    left.set_xticks(range(len(marks)), marks, rotation=45, ha="right")
    left.set_yticks(range(STATES), names)
    left.set(ylabel="state, by its leading marks", title="probability of a mark in a bin")
    figure.colorbar(shown, ax=left)
    for index, cell in enumerate(CELLS):
        right.barh(np.arange(STATES) + 0.4 * index - 0.2, shares[index], 0.4, color=PALETTE[index], label=cell)
    right.set(xlabel="share of bins", xscale="log", xlim=(None, 1))
    right.set_xticks([0.01, 0.1, 1.0], ["1 %", "10 %", "100 %"])
    right.minorticks_off()
    right.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.15), ncol=2)
    differing = int(np.argmax(np.abs(np.diff(np.log(shares + 1e-9), axis=0))))
    script.finish(
        figure,
        f"Chromatin, {CELLS[0]} and {CELLS[1]}, {len(sequences[0]):,} and {len(sequences[1]):,} bins: a state with "
        f"hardly any mark (each in at most {probs[0].max():.1%} of its bins) holds {shares[0, 0]:.0%} and "
        f"{shares[1, 0]:.0%} of them; the lines differ most in the state led by {names[differing]}: "
        f"{shares[0, differing]:.1%} against {shares[1, differing]:.1%}. These are point estimates.",
    )


if __name__ == "__main__":
    main()
