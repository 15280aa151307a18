"""Solar X-ray flux, minute by minute, seen by two satellites (GOES-13 and GOES-15): when were there flares?

The quiet sun drifts, so that levels of the flux itself mean little: what is modelled is the flux relative to the median
of the surrounding day, in factors of ten. Minutes in which the earth hides the sun, far below that median, count as
missing, like the gaps that are in the data. Where over an hour is missing, a new sequence begins. The highest of five
levels are the flares; with fewer levels the highest holds restless minutes, too. Both satellites watched the same sun:
a flare that one saw, the other should have seen.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import PALETTE, Script, spread, verdict
from matplotlib.dates import ConciseDateFormatter
from scipy.signal import find_peaks

import longhmm as lh

STATES, DAY, HOUR = 5, 1440, 60
DIP = -0.3  # half the day's median; the quiet sun does not fall that far
CLASSES = {"C": -6.0, "M": -5.0, "X": -4.0}  # of flares, log10 of W/m²


def read(file: Path, most: int) -> pd.Series:
    """Log10 of the flux by time; 1e-9 stands for no measurement."""
    with np.load(file) as stored:
        flux = stored["xl"][:most].astype(float)
        return pd.Series(np.log10(np.where(flux > 1.1e-9, flux, np.nan)), stored["time"][:most])


def main() -> None:
    script = Script("goes", __doc__, ("goes_xrs/goes13_1min.npz", "goes_xrs/goes15_1min.npz"))
    flux = pd.DataFrame({f"GOES-{file.stem[4:6]}": read(file, script.most) for file in script.files}).asfreq("min")
    excess = flux - flux.rolling(DAY, center=True, min_periods=HOUR).median()
    excess = excess.where(excess > DIP)
    parts = []  # column, first minute and the one after the last
    for column in range(2):
        seen = np.flatnonzero(excess.iloc[:, column].notna())
        for part in np.split(seen, np.flatnonzero(np.diff(seen) > HOUR) + 1):
            parts.append((column, part[0], part[-1] + 1))
    sequences = [excess.iloc[start:end, column].to_numpy() for column, start, end in parts]
    posterior = lh.sample(lh.HMM(n_states=STATES, emission=lh.Gaussian()), sequences, draws=script.draws, seed=0)
    flare = int(np.argmax(posterior.mean_params()["mean"]))

    numbers = np.zeros(flux.shape, dtype=int)  # of the flare that a minute belongs to, 0 for none
    events = posterior.events(sequences).query("state == @flare")
    for number, event in enumerate(events.itertuples(), 1):
        column, start, _ = parts[event.sequence]
        numbers[start + event.start : start + event.end, column] = number
    counts = [len(np.unique(each)) - 1 for each in numbers.T]
    watched = flux.notna().all(axis=1).to_numpy()
    shared = [_shared(numbers[:, each], numbers[:, 1 - each], watched) for each in range(2)]
    known = []
    for name, least in CLASSES.items():
        peaks = [_peaks(flux.iloc[:, each], least) for each in range(2)]
        hits = sum(np.count_nonzero(numbers[peaks[each], each]) for each in range(2))
        known.append(f"{hits} of {sum(map(len, peaks))} of class {name} or above")
    missing = np.isnan(np.concatenate(sequences))
    script.finish(
        _picture(flux, numbers > 0),
        f"GOES-13 and GOES-15, {len(missing):,} minutes in {len(sequences)} sequences, {missing.mean():.1%} of them "
        f"missing: {counts[0]} and {counts[1]} flares, on average at "
        f"{spread(10 ** posterior.draws['mean'][:, :, flare], '.2f')} times the day's median and lasting "
        f"{spread(1 / (1 - posterior.draws['transition'][:, :, flare, flare]), '.1f')} minutes. They hold "
        f"{known[0]}, {known[1]} and {known[2]}, counting maxima that stand out twofold. "
        f"Of those that both satellites watched throughout, {shared[0]} of GOES-13 were found in GOES-15, too, and "
        f"{shared[1]} the other way round. Verdict: {verdict(posterior)}.",
    )


def _shared(ours: np.ndarray, theirs: np.ndarray, watched: np.ndarray) -> str:
    """How many of our flares that were watched throughout are among theirs."""
    whole = set(ours[watched]) - set(ours[~watched]) - {0}
    return f"{len(whole & set(ours[theirs > 0]))} of {len(whole)}"


def _peaks(flux: pd.Series, least: float) -> np.ndarray:
    """Minutes in which the flux is highest, at least the given one and twice what lies between it and higher ones."""
    peaks, _ = find_peaks(flux.interpolate(limit_direction="both"), height=least, prominence=np.log10(2))
    return peaks[flux.notna().to_numpy()[peaks]]


def _picture(flux: pd.DataFrame, flares: np.ndarray) -> plt.Figure:
    figure, rows = plt.subplots(3, 1, figsize=(11, 8), layout="constrained")
    middle = int(np.argmax(np.convolve(flares.all(axis=1), np.ones(4 * DAY), "same")))
    near = slice(max(middle - 2 * DAY, 0), middle + 2 * DAY)
    for axes, column, part in ((rows[0], 0, slice(None)), (rows[1], 1, slice(None)), (rows[2], 1, near)):
        values = flux.iloc[part, column]
        axes.plot(values.index, values, color="#9aa0a8", linewidth=0.6, label="flux")
        axes.plot(values.where(flares[part, column]), color=PALETTE[1], linewidth=1.2, label="flare")
        for name, level in CLASSES.items():
            axes.axhline(level, color="#c9ccd1", linewidth=0.6, zorder=0)
            axes.annotate(name, (1.005, level), xycoords=("axes fraction", "data"), va="bottom", color="#55585e")
        axes.set(ylabel="log10 of W/m²", title=flux.columns[column], xlim=(values.index[0], values.index[-1]))
        axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
    rows[2].set_title(f"{flux.columns[1]}, the four days with most minutes of flares")
    figure.legend(*rows[2].get_legend_handles_labels(), loc="outside upper right", ncol=2, frameon=False)
    return figure


if __name__ == "__main__":
    main()
