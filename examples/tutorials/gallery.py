# %% [markdown]
# # Gallery
#
# Every picture of `lh.plots`, each with the line that draws it. All return a matplotlib figure, all take `ax=` to
# draw in axes of your own, and all are methods of a posterior as well: `posterior.plot.forest()` is
# `lh.plots.forest(posterior)`. Colours tell states apart, by day, by night and for eyes that see few of them. The
# [reference](../reference/plots.md) lists their arguments.
#
# Most of what follows is of one simulated channel: two closed states, which look alike and last differently long,
# and an open one.

# %%
import numpy as np
import pandas as pd

import longhmm as lh

dt = 1e-4
scheme = lh.Rates("C1 <-> C2 <-> O", dt=dt)
model = lh.HMM(3, lh.Tied(lh.Gaussian(), [0, 0, 1]), transitions=scheme, initial="stationary")
truth = {"rates": [20.0, 60.0, 400.0, 250.0], "mean": [0.0, 4.0], "sd": [0.6, 0.7]}
states, current = lh.simulate(model, truth, 20_000, seed=1)
posterior = lh.sample(model, current, chains=2, draws=200, seed=0, progress=False)
events = posterior.events(current, rate=1 / dt)

# %% [markdown]
# ## The recording and its states
#
# The trace, the most probable path, and the probabilities of states below.

# %%
lh.plots.segmentation(posterior, current, start=2000, stop=2600, rate=1 / dt, unit="pA")

# %% [markdown]
# All observations, and what the model expects of each state; `log=False` for a plain axis.

# %%
lh.plots.amplitudes(posterior, current, unit="pA")

# %% [markdown]
# ## How long, and where to
#
# Dwell times of every state, and of every level, with the mixture that the scheme implies.

# %%
lh.plots.dwell_times(posterior, events, rate=1 / dt)

# %%
lh.plots.level_dwell_times(posterior, events, rate=1 / dt)

# %% [markdown]
# Where each state goes: circles by share of time, arrows by share of departures.

# %%
lh.plots.transition_graph(posterior)

# %% [markdown]
# Mean values of visits before and after a change, the transition density of single-molecule work.

# %%
lh.plots.transition_density(posterior, current, events=events)

# %% [markdown]
# ## How sure
#
# Median, 50 % and 90 % intervals of parameters.

# %%
lh.plots.forest(posterior)

# %% [markdown]
# The chains, and their ranks among all draws, of the parameters on which they agree least.

# %%
lh.plots.chain_traces(posterior, entries=3)

# %% [markdown]
# ## Does the model describe the data?
#
# Every observation against its prediction from those before.

# %%
lh.plots.residual_check(posterior, current)

# %% [markdown]
# Statistics of data sets that are simulated at draws, beside those of the data.

# %%
lh.plots.predictive_check(posterior, current)

# %% [markdown]
# What windows lose by not seeing the whole recording, by the length of their margins.

# %%
lh.plots.buffer_report(posterior, current)

# %% [markdown]
# ## Many features
#
# What each state emits, feature by feature: here probabilities of eight marks in three states.

# %%
rng = np.random.default_rng(0)
marks = lh.HMM(3, lh.Bernoulli(8))
chances = {"transition": 0.9 * np.eye(3) + 0.1 / 3, "probs": rng.beta(0.4, 0.6, size=(3, 8))}
seen = lh.simulate(marks, chances, 3000, seed=2)[1]
genome = lh.sample(marks, seen, chains=2, draws=100, seed=0, progress=False)
lh.plots.emissions(genome)

# %% [markdown]
# ## Along a covariate
#
# Shares of time, dwell times and transitions as a covariate changes, with intervals.

# %%
hour = np.arange(3000) % 24
day = pd.DataFrame({"hour": hour, "light": np.cos(2 * np.pi * (hour - 12) / 24), "count": 0})
active = lh.HMM(2, lh.Poisson(), transitions="~ light")
known, _ = active.meet(lh.open_data(day, columns="count", covariates="light"))
slopes = np.array([[[0, 0], [-2, 1.5]], [[-2, -1.5], [0, 0]]])
day["count"] = lh.simulate(known, {"coefficients": slopes, "rate": [1, 8]}, 3000, seed=3, covariates=day)[1]
awake = lh.sample(
    active, lh.open_data(day, columns="count", covariates="light"), chains=2, draws=100, seed=0, progress=False
)
lh.plots.along(awake, "light", {"light": np.linspace(-1, 1, 31)})

# %% [markdown]
# ## A baseline that drifts
#
# Estimated with everything else, with its interval.

# %%
drifting = lh.HMM(2, lh.Gaussian(drift=lh.Drift(8)))
still = lh.HMM(2, lh.Gaussian())
two = {"transition": [[0.98, 0.02], [0.02, 0.98]], "mean": [0.0, 4.0], "sd": [0.7, 0.7]}
slow = lh.simulate(still, two, 5000, seed=4)[1][:, 0] + np.sin(np.linspace(0, 5, 5000))
wandering = lh.sample(drifting, slow, chains=2, draws=100, seed=0, progress=False)
lh.plots.baseline(wandering, unit="pA")

# %% [markdown]
# ## Pages
#
# `posterior.report(data)` writes one page with most of these and the recording to zoom into; `longhmm report run
# --beside other` puts two runs side by side, whose recordings then move together.

# %%
assert (events["state"] == 2).sum() > 20
assert float(np.abs(wandering.baseline()["mean"]).max()) > 0.5
