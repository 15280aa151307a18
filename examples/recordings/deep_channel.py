"""Ion channels behind a real amplifier, with known gating: is the number of open channels right, and how long it lasts?

The fit sees no label. What it is told: the number of channels, from the name of the file; that opening raises the
current; that channels are alike, so that levels lie about as far apart as the two in the record of a single channel;
and that in the record of five bursts of interference need a state of their own, for which there is no answer. Samples
at the end of the converter's range count as missing. Labels serve for the comparison alone; where their clock is slow,
it is first set to where they best agree with the current.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
from common import PALETTE, Script, verdict

import longhmm as lh

RECORDS = {"1ch_outfinaltest10": 0, "3ch_outfinaltest1": 0, "3ch_outfinaltest2": 0, "5ch_outfinaltest161": 1}  # bursts
RANGE = 4.99  # of the converter, either way
HEADER = ["record", "right", "no answer", "mean stays over the true ones, by open channels", "labels' clock", "verdict"]


def main() -> None:
    script = Script("deep_channel", __doc__, tuple(f"deep_channel/{name}.npz" for name in RECORDS))
    figure, axes = plt.subplot_mosaic([["trace"] * 4, list(RECORDS)], figsize=(11, 6.5), layout="constrained")
    single, table, rates, inside = {}, [HEADER], [], []
    for (name, bursts), file in zip(RECORDS.items(), script.files, strict=True):
        with np.load(file) as stored:
            current, labels = stored["current"][: script.most].astype(float), stored["n_open"][: script.most]
            ms = 1e3 * float(stored["dt"])
        current[np.abs(current) > RANGE] = np.nan
        levels = int(name[0]) + 1
        if single:
            model, start = alike(single, levels, bursts)
        else:
            model, start = lh.HMM(n_states=2, emission=lh.Gaussian()), None
        posterior = lh.sample(model, current, init=start, draws=script.draws, seed=0)
        single = single or posterior.mean_params()
        path, (truth, slow) = posterior.decode(current), in_step(labels, current)
        answered = path < levels
        rates.append(np.mean(path[answered] == truth[answered]))
        real = np.array([mean_stay(truth, each) for each in range(levels)]) * ms
        stays = posterior.dwell()[["dwell", "dwell_lower", "dwell_upper"]].to_numpy()[:levels] * ms
        inside.extend((stays[:, 1] <= real) & (real <= stays[:, 2]))
        ratios, clock = ", ".join(f"{each:.2f}" for each in stays[:, 0] / real), f"{slow:.2%} slow" if slow else "right"
        table.append([name, f"{rates[-1]:.2%}", f"{np.mean(~answered):.1%}", ratios, clock, verdict(posterior)])
        axes[name].bar(range(levels), real, color="#c9ccd1", label="labels")
        bars = np.abs(stays[:, 1:].T - stays[:, 0])
        axes[name].errorbar(
            range(levels), stays[:, 0], bars, fmt="_", color=PALETTE[1], capsize=4, label="90 % interval"
        )
        axes[name].set(xlabel="open channels", ylabel="mean stay (ms)", xticks=range(levels))
        axes[name].set_title(f"{name}\n{rates[-1]:.1%} right", fontsize=9)
    axes["3ch_outfinaltest1"].legend(frameon=False, fontsize=9, loc="upper left")

    part = slice(len(path) // 2, len(path) // 2 + 400)  # of the last record
    level, time = posterior.mean_params()["mean"], np.arange(len(path[part])) * ms
    axes["trace"].plot(time, current[part], color="#9aa0a8", linewidth=0.7, label="current")
    axes["trace"].step(time, level[truth[part]], color="#111111", linewidth=1.6, label="labels")
    found = np.where(answered[part], level[path[part]], np.nan)
    axes["trace"].step(time, found, color=PALETTE[1], linewidth=1, label="path")
    axes["trace"].set(xlabel="ms", ylabel="current (unit of the file)", title=f"{name}: no path during interference")
    axes["trace"].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    script.finish(
        figure,
        f"Deep-Channel, {len(RECORDS)} records: the most probable path has the labels' number of open channels in "
        f"{min(rates):.1%} to {max(rates):.1%} of the samples for which it has one. The labels' mean stay lies in the "
        f"90 % interval for {sum(inside)} of {len(inside)} levels.",
        table,
    )


def alike(single: dict[str, np.ndarray], levels: int, bursts: int) -> tuple[lh.HMM, dict[str, Any]]:
    """A model of channels like the single one, whose states keep their order, bursts last; and where it starts."""
    (closed, opened), noise, size = single["mean"], float(single["sd"].mean()), levels + bursts
    mean = closed + (opened - closed) * np.arange(levels)
    mean, width = np.append(mean, [mean.mean()] * bursts), np.append([0.2] * levels, [2.0] * bursts)
    sd = noise * np.append(np.ones(levels), [7.0] * bursts)
    priors = {"mean": dist.Normal(mean, width * (opened - closed)), "sd": dist.LogNormal(np.log(sd), 0.25)}
    model = lh.HMM(n_states=size, emission=lh.Gaussian(**priors))
    return model, {"transition": 0.9 * np.eye(size) + 0.1 / size, "mean": mean, "sd": sd}


def in_step(labels: np.ndarray, current: np.ndarray) -> tuple[np.ndarray, float]:
    """Labels after setting their clock, and the share by which it was slow."""
    index, known, shares = np.arange(len(labels)), np.isfinite(current), np.linspace(0, 0.01, 1001)
    read = (labels[np.rint(index * (1 - share)).astype(int)] for share in shares)
    best = int(np.argmax([np.corrcoef(current[known], each[known])[0, 1] for each in read]))
    return labels[np.rint(index * (1 - shares[best])).astype(int)].astype(int), float(shares[best])


def mean_stay(path: np.ndarray, state: int) -> float:
    """Samples per visit."""
    here = path == state
    return float(here.sum() / max(np.sum(np.diff(here, prepend=False) & here), 1))


if __name__ == "__main__":
    main()
