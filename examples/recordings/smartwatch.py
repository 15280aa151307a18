"""A watch on the wrist during exercises of the shoulder, 140 recordings of six channels: do states know the exercise?

The labels are not seen by the fit; they serve to see what the states are worth. By expectation maximisation, without
intervals: with 272 parameters, `lh.sample` had not finished after six minutes on two busy cores.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from common import Script

import longhmm as lh

STATES = 8
EXERCISES = (
    "pendulum", "abduction", "forward elevation", "internal rotation", "external rotation", "trapezius", "row"
)  # fmt: skip


def main() -> None:
    script = Script("smartwatch", __doc__, ("watch/watch_concat.npz",))
    with np.load(script.files[0]) as stored:
        values, lengths, labels = stored["X"], stored["lengths"], stored["y"]
    kept = np.cumsum(lengths) <= script.most
    sequences = [each for each, keep in zip(np.split(values, np.cumsum(lengths)[:-1]), kept, strict=True) if keep]
    labels = labels[kept]
    model = lh.HMM(n_states=STATES, emission=lh.Gaussian(dim=values.shape[1]))
    fit = lh.fit_em(model, sequences, restarts=4, seed=0)
    order = np.argsort(fit.params["mean"][:, 0])
    path = np.argsort(order)[lh.decode(model, fit.params, sequences)]
    parts = np.split(path, np.cumsum([len(each) for each in sequences])[:-1])
    shares = np.array([np.bincount(part, minlength=STATES) / len(part) for part in parts])
    right = np.mean(_nearest_other(shares, labels) == labels)
    most = np.max(np.bincount(labels)) / len(labels)

    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    kinds = np.unique(labels)
    table = np.array([shares[labels == kind].mean(axis=0) for kind in kinds])
    shown = axes.imshow(table, cmap="Blues", aspect="auto", vmin=0)
    axes.set_xticks(range(STATES))
    axes.set_yticks(range(len(kinds)), [EXERCISES[kind] for kind in kinds])
    axes.set(xlabel="state, by rising acceleration along x", title="share of an exercise's time in each state")
    figure.colorbar(shown, ax=axes)
    script.finish(
        figure,
        f"Smartwatch, {len(sequences)} recordings, {sum(map(len, sequences)):,} samples: the time spent in each of "
        f"{STATES} states, found without labels, tells the exercise of {right:.0%} of the "
        f"recordings by their nearest neighbour, where always naming the most frequent one would be right for "
        f"{most:.0%}. These are point estimates.",
    )


def _nearest_other(shares: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The label of the most similar other recording."""
    distance = np.abs(shares[:, None] - shares[None]).sum(axis=2) + 10.0 * np.eye(len(shares))
    return np.asarray(labels[distance.argmin(axis=1)])


if __name__ == "__main__":
    main()
