"""Ten chromatin marks along chromosome 11 in two cell lines: states by the marks they carry, shared by both."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from common import Script

import longhmm as lh

STATES = 6
CELLS = ("GM12878", "K562")


def main() -> None:
    files = tuple(f"chromhmm/{cell}_chr11.npz" for cell in CELLS)
    script = Script("chromatin", __doc__, files, 60_000)
    sequences, marks = [], []
    for file in script.files:
        with np.load(file) as stored:
            sequences.append(stored["X"][: script.most])
            marks = [str(mark) for mark in stored["marks"]]
    model = lh.HMM(n_states=STATES, emission=lh.Bernoulli(dim=len(marks)))
    fit = lh.fit_em(model, sequences, restarts=4, seed=0, progress=False)
    probabilities = fit.params["probs"]
    path = lh.decode(model, fit.params, sequences)
    ends = np.cumsum([len(each) for each in sequences])
    shares = np.array([np.bincount(each, minlength=STATES) / len(each) for each in np.split(path, ends[:-1])])
    order = np.argsort(probabilities.sum(axis=1))

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=(2, 1))
    shown = left.imshow(probabilities[order], vmin=0, vmax=1, cmap="Blues", aspect="auto")
    left.set_xticks(range(len(marks)), marks, rotation=45, ha="right")
    left.set(ylabel="state", title="probability of a mark")
    figure.colorbar(shown, ax=left)
    for index, cell in enumerate(CELLS):
        right.barh(np.arange(STATES) + 0.4 * index - 0.2, shares[index][order], 0.4, label=cell)
    right.invert_yaxis()
    right.set(xlabel="share of bins", xscale="log")
    right.legend(frameon=False)
    empty, differing = order[0], int(np.argmax(np.abs(np.log(shares[0] / shares[1]))))
    top = [marks[index] for index in np.argsort(-probabilities[differing])[:2]]
    script.finish(
        figure,
        f"Chromatin, two cell lines, {len(sequences[0]):,} bins each: a state with hardly any mark (at most "
        f"{probabilities[empty].max():.0%}) holds {shares[0][empty]:.0%} and {shares[1][empty]:.0%} of the bins; "
        f"the lines differ most in the state led by {top[0]} and {top[1]}, {shares[0][differing]:.1%} against "
        f"{shares[1][differing]:.1%}.",
    )


if __name__ == "__main__":
    main()
