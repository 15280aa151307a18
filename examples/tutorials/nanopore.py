# %% [markdown]
# # Nanopore: counting molecules
#
# A nanopore carries a steady current until a molecule enters and blocks it. The recording that comes with longhmm
# holds one second of it, half a million samples; a tenth is enough here. The questions: how many blockades, how long
# do they last, and how far do the answers depend on the model?

# %%
import matplotlib.pyplot as plt
import numpy as np

import longhmm as lh

recording = lh.datasets.nanopore()
current = recording.values[:50_000]
print(recording)

# %% [markdown]
# ## Look at it
#
# Two levels, and a few samples between them, caught by the amplifier's filter on their way.

# %%
figure, (trace, counts) = plt.subplots(1, 2, figsize=(10, 3), layout="constrained", width_ratios=(3, 1), sharey=True)
trace.plot(1e3 * np.arange(2000) / recording.rate_hz, current[:2000], linewidth=0.6)
trace.set(xlabel="time (ms)", ylabel=f"current ({recording.unit})")
counts.hist(current, bins=150, orientation="horizontal", log=True)
counts.set(xlabel="samples")

# %% [markdown]
# ## Two models
#
# In a Gaussian state the samples in between count for much: the blocked state widens to reach them. Student's t
# forgives them. Expectation maximisation gives the nearest mode of each in a second, and the log likelihood says
# which describes the samples better.

# %%
models = {"Gaussian": lh.HMM(2, lh.Gaussian()), "Student's t": lh.HMM(2, lh.StudentT())}
found = {}
for name, model in models.items():
    fit = lh.fit_em(model, current, seed=0)
    path = lh.decode(model, fit.params, current)
    blockades = np.sum(np.diff(path) == -1)  # states are numbered by rising level: 0 is the blocked pore
    level = fit.params["mean" if name == "Gaussian" else "loc"][0]
    found[name] = fit.log_likelihood
    print(f"{name:12} {blockades} blockades at {level:.1f} pA, log likelihood {fit.log_likelihood:,.0f}")

# %% [markdown]
# ## How sure is it?
#
# Draws from the posterior instead of one estimate. Nothing needs tuning.

# %%
posterior = lh.sample(models["Student's t"], current, chains=2, draws=200, seed=0, progress=False)
print(posterior.summary())

# %% [markdown]
# ## The events
#
# One row for each visit to a state, in samples and in seconds. Dwell times come from the draws of the transition
# matrix, with an interval; the figure compares them with the visits that were decoded.

# %%
events = posterior.events(current, rate=recording.rate_hz)
blocked = events[events["state"] == 0]
print(blocked[["start_s", "end_s", "level"]].head(3))
print(posterior.dwell(rate=recording.rate_hz)[["dwell_s", "dwell_s_lower", "dwell_s_upper"]])

# %%
first = int(blocked["start"].iloc[0])
lh.plots.segmentation(posterior, current, start=first - 200, stop=first + 400, rate=recording.rate_hz, unit="pA")

# %%
lh.plots.dwell_times(posterior, events, rate=recording.rate_hz)

# %% [markdown]
# ## Can it be trusted?
#
# The amplifier's filter correlates neighbouring samples, and a model that takes them for independent is surer than it
# may be: levels and events are good, intervals too narrow. With draws enough to judge, which these are not,
# `posterior.diagnose(current)` holds the model against the data; [Reading the verdict](../verdict.md) says what can be
# done.

# %%
assert found["Student's t"] > found["Gaussian"]
assert 20 < len(blocked) < 80
assert 40 < float(posterior.draws["loc"].mean(("chain", "draw"))[0]) < 60
