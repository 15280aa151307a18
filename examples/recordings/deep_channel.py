"""Three ion channels behind a real amplifier, with known gating: how often is the number of open channels right?"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from common import PALETTE, Script

import longhmm as lh


def main() -> None:
    script = Script("deep_channel", __doc__, ("deep_channel/3ch_outfinaltest1.npz",), 0)
    with np.load(script.files[0]) as stored:
        current, truth = stored["current"][: script.most], stored["n_open"][: script.most].astype(int)
        milliseconds = 1e3 * float(stored["dt"])
    n_states = int(truth.max()) + 1
    model = lh.HMM(n_states=n_states, emission=lh.Gaussian())
    fit = lh.fit_em(model, current, restarts=6, seed=0, progress=False)
    # States come by the size of their current, as the number of open channels does, whichever its sign.
    level = np.array([np.mean(current[truth == each]) for each in range(n_states)])
    order = np.argsort(fit.params["mean"][:, 0])
    order = order if level[-1] > level[0] else order[::-1]
    path = np.argsort(order)[lh.decode(model, fit.params, current)]
    accuracy = np.mean(path == truth)
    dwell = [[_mean_stay(series, state) * milliseconds for state in range(n_states)] for series in (truth, path)]

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 6), layout="constrained")
    part = slice(_busiest(truth), _busiest(truth) + 500)
    time = np.arange(part.start, part.stop) * milliseconds
    upper.plot(time, current[part], color="#c9ccd1", linewidth=0.6)
    upper.step(time, level[truth[part]], color="#111111", linewidth=1.6, label="truth")
    upper.step(time, fit.params["mean"][order, 0][path[part]], color=PALETTE[1], linewidth=0.9, label="decoded")
    upper.set(xlabel="ms", ylabel="current")
    upper.legend(frameon=False)
    places = np.arange(n_states)
    for shift, values, label in ((-0.2, dwell[0], "truth"), (0.2, dwell[1], "decoded")):
        lower.bar(places + shift, values, 0.4, label=label, color="#111111" if label == "truth" else PALETTE[1])
    lower.set(xlabel="open channels", ylabel="mean stay (ms)", xticks=places)
    lower.legend(frameon=False)
    ratio = np.array(dwell[1]) / np.array(dwell[0])
    script.finish(
        figure,
        f"Deep-Channel, {len(current):,} samples, up to {n_states - 1} open channels: the most probable path has "
        f"{accuracy:.2%} of the samples right without having seen a label, and its mean stays are "
        f"{ratio.min():.2f} to {ratio.max():.2f} times the true ones.",
    )


def _mean_stay(path: np.ndarray, state: int) -> float:
    """Samples per visit."""
    here = path == state
    visits = int(here[0]) + int(np.sum(here[1:] & ~here[:-1]))
    return float(here.sum() / max(visits, 1))


def _busiest(truth: np.ndarray) -> int:
    changes = np.add.reduceat(np.diff(truth, prepend=truth[0]) != 0, np.arange(0, len(truth), 2000))
    return min(int(np.argmax(changes)) * 2000, max(len(truth) - 2000, 0))


if __name__ == "__main__":
    main()
