# %% [markdown]
# # Genomics: states of chromatin
#
# Along a chromosome, in bins of 200 bases, some histone marks are present and others not. Bins of the same kind,
# promoters for example, carry the same combination of marks. The data are ten marks on chromosome 11 of a human cell
# line (ChromHMM's example, GM12878); where they are not at hand, marks like them are simulated.

# %%
import matplotlib.pyplot as plt
import numpy as np

import longhmm as lh
from longhmm_reproduction.channels import data_folder

n_states = 5
model = lh.HMM(n_states, lh.Bernoulli(dim=10))
file = data_folder() / "chromhmm" / "GM12878_chr11.npz"
if file.is_file():
    stored = np.load(file)
    marks, present = [str(mark) for mark in stored["marks"]], stored["X"][300_000:400_000]
else:
    marks = [f"mark {number}" for number in range(10)]
    probs = np.full((n_states, 10), 0.01)
    for state in range(1, n_states):
        probs[state, 2 * state : 2 * state + 2] = 0.7
    staying = 0.9 * np.eye(n_states) + 0.1 / n_states
    _, present = lh.simulate(model, {"transition": staying, "probs": probs}, 100_000, seed=0)
print(f"{len(present):,} bins; marks present: {dict(zip(marks, present.mean(axis=0).round(3).tolist(), strict=True))}")

# %% [markdown]
# ## Fit and decode
#
# Expectation maximisation with several starts finds the states: with many of them and a million bins it takes seconds
# in the fused kernel. Draws from the posterior (`lh.sample`) say how sure the probabilities are.

# %%
fit = lh.fit_em(model, present, restarts=3, seed=0)
path = lh.decode(model, fit.params, present)
order = np.argsort(fit.params["probs"].sum(axis=1))  # from the state with fewest marks to that with most
probs, share = fit.params["probs"][order], np.bincount(path, minlength=n_states)[order] / len(path)
dwell = 0.2 / (1 - np.diag(fit.params["transition"])[order])
for state in range(n_states):
    leading = ", ".join(marks[mark] for mark in np.argsort(-probs[state])[:3])
    print(f"state {state}: {share[state]:6.1%} of the bins, {dwell[state]:6.1f} kilobases at a time; led by {leading}")

# %% [markdown]
# ## What the states are
#
# The picture of a chromatin model: how probable each mark is in each state. Then a stretch of the chromosome,
# painted.

# %%
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
shown = axes.imshow(probs, vmin=0, vmax=1, cmap="Blues", aspect="auto")
axes.set_xticks(range(10), marks, rotation=45, ha="right")
axes.set(ylabel="state", yticks=range(n_states), title="probability of a mark in a bin")
figure.colorbar(shown)
figure, (above, below) = plt.subplots(2, 1, figsize=(9, 3), layout="constrained", sharex=True, height_ratios=(3, 1))
part = slice(20_000, 21_000)
above.imshow(present[part].T, cmap="Greys", aspect="auto", interpolation="nearest")
above.set_yticks(range(10), marks, fontsize=7)
below.imshow(np.argsort(order)[path[part]][None], cmap="viridis", aspect="auto", interpolation="nearest")
below.set(xlabel="bin of 200 bases", ylabel="state", yticks=[])

# %% [markdown]
# `longhmm decode run --bed states.bed` writes the segmentation for a genome browser.

# %%
assert fit.converged or fit.n_iterations > 20
assert probs[0].max() < 0.2 < probs[-1].max()
