# %% [markdown]
# # smFRET: rates of single molecules
#
# A molecule carries two dyes. The nearer they are, the more light goes over from the donor to the acceptor: the
# efficiency shows which form the molecule has, frame by frame, until a dye bleaches. The question is how often it
# changes form, per second. The traces are those of level 1 of the kinSoft challenge (Goetz and others, 2022), which
# were simulated with rates of 0.15 and 0.22 per second and analysed by 14 groups; where they are not at hand,
# traces like them are simulated.

# %%
import matplotlib.pyplot as plt
import numpy as np

import longhmm as lh
from longhmm_reproduction.channels import data_folder

file = data_folder() / "kinsoft" / "level1.npz"
if file.is_file():
    with np.load(file) as stored:
        dt, ends = float(stored["dt"]), np.cumsum(stored["lengths"])[:-1]
        traces = np.split(np.column_stack([stored["donor"], stored["acceptor"]]), ends)[:40]
else:
    dt, rng, traces = 0.1, np.random.default_rng(0), []
    simple = lh.HMM(2, lh.Gaussian(), transitions=lh.Rates("1 <-> 2", dt=dt), initial="stationary")
    truth = {"rates": [0.15, 0.22], "mean": [0.2, 0.75], "sd": [0.07, 0.07]}
    for molecule in range(40):
        efficiency = lh.simulate(simple, truth, 500, seed=molecule)[1][:, 0]
        light = 1000 * np.column_stack([1 - efficiency, efficiency])
        light[rng.integers(300, 500) :] = 0.0  # bleached
        traces.append(light + rng.normal(scale=5, size=light.shape))
print(f"{len(traces)} molecules, {sum(map(len, traces)):,} frames of {dt:g} s")

# %% [markdown]
# ## Efficiencies
#
# `lh.fret` makes them of donor and acceptor, and ends every trace where its light goes out for good. Corrections,
# if they are known, are `gamma=`, `leakage=` and `direct=`.

# %%
data = lh.fret(traces)
print(f"{data.n_sequences} traces, {data.length:,} frames before bleaching")
figure, axes = plt.subplots(2, 1, figsize=(9, 4), layout="constrained", sharex=True)
seconds, first = dt * np.arange(len(traces[0])), int(data.offsets[1])
axes[0].plot(seconds, traces[0], linewidth=0.7, label=["donor", "acceptor"])
axes[0].legend(frameon=False)
axes[1].plot(seconds[:first], data.rows(0, first).values[:, 0], linewidth=0.7, color="black")
axes[1].set(xlabel="time (s)", ylabel="efficiency", ylim=(-0.2, 1.2))

# %% [markdown]
# ## A scheme in continuous time
#
# `lh.Rates("1 <-> 2", dt=...)` has one rate for each arrow, per second; transitions from frame to frame follow, `A
# = expm(Q dt)`. Every molecule is a sequence, and begins where the scheme would find it in the long run.

# %%
model = lh.HMM(2, lh.Gaussian(), transitions=lh.Rates("1 <-> 2", dt=dt), initial="stationary")
posterior = lh.sample(model, data, chains=2, draws=250, seed=0, progress=False)
print(posterior.rates())

# %% [markdown]
# The interval is that of these molecules, half of the challenge's; [all of them, and the harder levels, are on the
# page of kinetics](../kinetics.md). Where frames average over their exposure, rates come out
# somewhat low: see the end of this page. Dwell times, occupancies and relaxation times follow from the rates:

# %%
print(posterior.kinetics())

# %% [markdown]
# ## Pictures of the trade

# %%
lh.plots.amplitudes(posterior, data, log=False)

# %%
events = posterior.events(data, rate=1 / dt)
lh.plots.transition_density(posterior, data, events=events)

# %%
lh.plots.level_dwell_times(posterior, events, rate=1 / dt)

# %% [markdown]
# ## Where to go from here
#
# Frames average over their exposure, so that a jump within one lies between the levels:
# `lh.FrameAverage(substeps=6)` in place of `lh.Gaussian()` says so. Forms that look alike share a level:
# `lh.Tied(lh.Gaussian(), (0, 0, 1, 1))` with `lh.Rates("4 <-> 1 <-> 2 <-> 3", dt=dt)`. From a terminal: `longhmm
# fit traces.json --fret gamma=1.2 --states 2 --scheme "1 <-> 2" --out run`; files of ebFRET, vbFRET, tMAVEN and SMD
# are read as they are.

# %%
rates = posterior.rates().set_index(["from", "to"])["mean"]
assert np.all(np.abs(np.sort(rates) / [0.15, 0.22] - 1) < 0.25)
