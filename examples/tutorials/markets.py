# %% [markdown]
# # Markets: recessions and expansions
#
# Hamilton (1989) found recessions in the growth of the real gross national product of the United States, quarter by
# quarter: one mean for good times, one for bad, and a chain that changes between them. With 135 numbers
# the uncertainty is the point. Where the numbers are not at hand, a series like them is simulated.

# %%
import matplotlib.pyplot as plt
import numpy as np

import longhmm as lh
from longhmm_reproduction.channels import data_folder

file = data_folder() / "regression" / "rgnp.csv"
if file.is_file():
    growth = np.loadtxt(file, skiprows=1)
else:
    simple = lh.HMM(2, lh.Gaussian())
    truth = {"transition": [[0.75, 0.25], [0.1, 0.9]], "mean": [-0.4, 1.2], "sd": [0.8, 0.8]}
    growth = lh.simulate(simple, truth, 135, seed=3)[1][:, 0]
print(f"{len(growth)} quarters, mean growth {growth.mean():.2f} %")

# %% [markdown]
# ## Two means
#
# States are numbered by rising mean: state 0 is the recession.

# %%
posterior = lh.sample(lh.HMM(2, lh.Gaussian()), growth, chains=2, draws=400, seed=0, progress=False)
print(posterior.summary())

# %% [markdown]
# ## The chance of a recession
#
# Averaged over the draws, so that the uncertainty of the parameters is in it. `causal=True` gives the chance as it
# looked at the time, without knowledge of what came later.

# %%
smooth = posterior.state_probabilities(growth)[:, 0]
then = posterior.state_probabilities(growth, causal=True)[:, 0]
figure, (above, below) = plt.subplots(2, 1, figsize=(9, 4.2), layout="constrained", sharex=True)
above.bar(range(len(growth)), growth, color=np.where(growth < 0, "#D55E00", "#0072B2"))
above.set(ylabel="growth (%)")
below.fill_between(range(len(growth)), smooth, alpha=0.4, label="with all quarters")
below.plot(then, color="black", linewidth=0.8, label="at the time")
below.set(xlabel="quarter", ylabel="chance of the low state", ylim=(0, 1))
below.legend(frameon=False)

# %% [markdown]
# ## How long do they last?
#
# Expected durations, in quarters, with intervals.

# %%
print(posterior.dwell()[["dwell", "dwell_lower", "dwell_upper"]].round(1))
lh.plots.transition_graph(posterior)

# %% [markdown]
# Hamilton's own model has autoregressive noise about the switching mean: `lh.HMM(2,
# lh.Gaussian(noise=lh.ARNoise(4)))`, whose states remember four quarters. For returns of a day, regimes of volatility
# are `lh.HMM(2, lh.StudentT())`.

# %%
means = posterior.draws["mean"].mean(("chain", "draw"))
assert float(means[0]) < 0.7 < float(means[1])
assert smooth.min() >= 0 and smooth.max() <= 1 and smooth[growth < -1].mean() > 0.5
