# %% [markdown]
# # Wearables: what is the wrist doing?
#
# A watch measures acceleration and rotation, six channels, fifty times a second. Movements repeat: a few states and
# their order describe them. The data are shoulder exercises with known labels (seglearn); where they are not at hand,
# recordings like them are simulated. The fit never sees a label.

# %%
import matplotlib.pyplot as plt
import numpy as np

import longhmm as lh
from longhmm_reproduction.channels import data_folder

n_states = 6
model = lh.HMM(n_states, lh.Gaussian(dim=6))
file = data_folder() / "watch" / "watch_concat.npz"
if file.is_file():
    stored = np.load(file)
    every = np.split(stored["X"], np.cumsum(stored["lengths"])[:-1])
    recordings, labels = [each[:800] for each in every[::3]], stored["y"][::3]
    exercises = ["pendulum", "abduction", "elevation", "rotation inwards", "rotation outwards", "trapezius", "row"]
else:
    rng = np.random.default_rng(0)
    means, recordings, labels = rng.normal(scale=3, size=(n_states, 6)), [], np.arange(45) % 3
    exercises = ["first", "second", "third"]
    for number, label in enumerate(labels):
        weights = np.eye(n_states)[[label, label + 1, label + 2]].sum(axis=0) + 0.05
        moves = 0.9 * np.eye(n_states) + 0.1 * weights / weights.sum()
        truth = {"transition": moves, "mean": means, "covariance": np.tile(np.eye(6), (n_states, 1, 1))}
        recordings.append(lh.simulate(model, truth, 800, seed=number)[1])
print(f"{len(recordings)} recordings, {sum(map(len, recordings)):,} samples of {recordings[0].shape[1]} channels")

# %% [markdown]
# ## States shared by all recordings
#
# A list of arrays is many sequences. Between the end of one and the start of the next there is no transition. Six
# channels and six states have 192 parameters; expectation maximisation gives their best values, without intervals.

# %%
fit = lh.fit_em(model, recordings, restarts=2, seed=0)
path = lh.decode(model, fit.params, recordings)
parts = np.split(path, np.cumsum([len(each) for each in recordings])[:-1])
share = np.array([np.bincount(part, minlength=n_states) / len(part) for part in parts])

# %% [markdown]
# ## Do the states know the exercise?
#
# For each recording, the share of time in each state. The recording whose shares are nearest tells the exercise,
# without anything having been trained for it.

# %%
distance = np.abs(share[:, None] - share[None]).sum(axis=2) + 9 * np.eye(len(share))
right = np.mean(labels[np.argmin(distance, axis=1)] == labels)
frequent = np.bincount(labels).max() / len(labels)
print(f"{right:.0%} of the recordings are named rightly; naming always the most frequent exercise: {frequent:.0%}")
figure, axes = plt.subplot_mosaic([["share", "moves"], ["share", "state"]], figsize=(10, 3.6), layout="constrained")
kinds = np.unique(labels)
axes["share"].imshow([share[labels == kind].mean(axis=0) for kind in kinds], cmap="Blues", aspect="auto", vmin=0)
axes["share"].set_yticks(range(len(kinds)), [exercises[kind] for kind in kinds])
axes["share"].set(xlabel="state", title="share of an exercise's time")
axes["moves"].plot(recordings[0][:, :3], linewidth=0.7)
axes["moves"].set(title="acceleration of the first recording, and its state", xticks=[])
axes["state"].step(np.arange(len(parts[0])), parts[0], color="black", linewidth=1)
axes["state"].set(xlabel="sample", ylabel="state", yticks=range(n_states))

# %% [markdown]
# Exercises that hold the arm alike share their states, and are taken for one another: shares of time do not know the
# course of a movement.
#
# [Sleep](sleep.md) is another thing that a watch sees, in counts. EDF and WFDB files are opened by name: `longhmm fit
# night.edf --states 5`.

# %%
assert right > frequent + 0.1
