# %% [markdown]
# # Patch clamp: how many channels are open?
#
# Several identical channels in one patch open and close independently; the current shows how many are open, with
# noise. Here the truth is known: gating was simulated and replayed through a real patch-clamp amplifier
# (Deep-Channel, Celik and others, 2020). Where that recording is not at hand, one like it is simulated.

# %%
import matplotlib.pyplot as plt
import numpy as np

import longhmm as lh
from longhmm_reproduction.channels import data_folder

dt = 1e-4  # seconds between samples
channels = lh.Channels(3, "C <-> O", dt=dt)
model = lh.HMM(4, lh.EquallySpaced(channels.levels), transitions=channels)
file = data_folder() / "deep_channel" / "3ch_outfinaltest1.npz"
if file.is_file():
    stored = np.load(file)
    current, n_open = stored["current"][:8_000].astype(float), stored["n_open"][:8_000]
    print(f"{len(current):,} samples of a recording with three channels")
else:
    truth = {"rates": [60.0, 25.0], "base": [-2.7], "step": [1.24], "sd": [0.28] * 4}
    n_open, values = lh.simulate(model, truth, 8_000, seed=0)
    current = values[:, 0]
    print(f"{len(current):,} samples, simulated")

# %% [markdown]
# ## A model that knows it is three channels
#
# Four levels could be four states with twelve transitions. But three channels with one scheme, `C <-> O`, have *two*
# rates, and every open channel adds the same current: `Channels` and `EquallySpaced` say so. What the data then have
# to tell is little, and rates come out per second.

# %%
posterior = lh.sample(model, current, chains=2, draws=150, seed=0, progress=False)
print(posterior.summary())
print(posterior.rates())

# %% [markdown]
# ## Against the truth
#
# States are numbered by open channels, so that the most probable path can be held against the labels directly.

# %%
path = posterior.decode(current)
right = np.mean(path == n_open)
print(f"{right:.1%} of the samples have the right number of open channels")
table = np.array([[np.sum((path == found) & (n_open == true)) for found in range(4)] for true in range(4)])
figure, axes = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
axes.imshow(np.log1p(table), cmap="Blues")
for true, found in np.ndindex(4, 4):
    colour = "white" if table[true, found] > 1000 else "black"
    axes.text(found, true, f"{table[true, found]:,}", ha="center", va="center", color=colour)
axes.set(xlabel="open channels, decoded", ylabel="open channels, true", xticks=range(4), yticks=range(4))

# %% [markdown]
# ## The trace

# %%
lh.plots.segmentation(posterior, current, start=5000, stop=5600, rate=1 / dt, unit="pA")

# %%
lh.plots.amplitudes(posterior, current, unit="pA")

# %% [markdown]
# ## Where to go from here
#
# An amplifier's filter rounds steps and correlates noise: `lh.Gaussian(noise=lh.MANoise(3))` and
# `response=lh.StepResponse(...)` describe it. A scheme of more states on the same level is one line (`"C1 <-> C2 <->
# O"`). `longhmm fit recording.abf --states 2 --scheme "C <-> O"` does it from a terminal.

# %%
assert right > 0.95
assert np.all(posterior.draws["rates"] > 0)
