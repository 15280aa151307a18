# %% [markdown]
# # Sleep: when did they fall asleep, and how sure is that?
#
# An actigraph on the wrist counts movements. While its wearer sleeps, most counts are 0; while awake they are large and
# scatter. A person at a desk also gives zeros and a sleeper turns over, so that one count says little: the order of the
# counts, and the hour of the day, decide.
#
# No recording of sleep comes with longhmm, so this one is simulated: two weeks in steps of five minutes. The truth is
# known, and is looked at only at the end. Of a file of your own: `table = pd.read_csv("night.csv")`.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import longhmm as lh

EVERY = 5  # minutes
rng = np.random.default_rng(0)
clock = pd.date_range("2024-03-04 12:00", periods=14 * 24 * 60 // EVERY, freq=f"{EVERY}min")
hour = np.asarray(clock.hour + clock.minute / 60)
night = np.cos(2 * np.pi * (hour - 3) / 24)  # 1 at three in the morning, -1 at three in the afternoon
falls, wakes = (1 / (1 + np.exp(-each)) for each in (2.5 * night - 5.5, -2.5 * night - 3.5))
awake = np.ones(len(hour), int)
for row in range(1, len(hour)):
    awake[row] = rng.random() > falls[row] if awake[row - 1] else rng.random() < wakes[row]
mean, shape = np.where(awake, 180.0, 9.0), np.where(awake, 1.8, 0.7)
counts = rng.negative_binomial(shape, shape / (shape + mean))
counts[rng.random(len(hour)) < np.where(awake, 0.04, 0.6)] = 0  # the wrist rests
table = pd.DataFrame({"hour": hour, "counts": counts}, index=clock)
print(table.iloc[140:143])

# %% [markdown]
# ## Counts with many zeros, transitions that follow the hour
#
# A zero-inflated negative binomial has what these counts have: zeros beyond those of the distribution, and more scatter
# than a Poisson. The formula lets the chances of falling asleep and of waking go round with the clock; a sine and a
# cosine have no step at midnight.

# %%
data = lh.open_data(table, columns="counts", covariates=["hour"])
counted = lh.ZeroInflated(lh.NegativeBinomial())
model = lh.HMM(2, counted, transitions="~ cos(2 * pi * hour / 24) + sin(2 * pi * hour / 24)")
posterior = lh.sample(model, data, draws=500, seed=0, progress=False)
verdict = posterior.diagnose(data)
print(verdict)
print(posterior.summary().filter(regex="^(zero|mean|concentration)", axis=0))

# %% [markdown]
# States are numbered by rising level: 0 is asleep. More than half of its counts are zeros beyond those of the negative
# binomial. The chances at any hour, with their intervals:

# %%
lh.plots.along(posterior, "hour", {"hour": np.linspace(0, 24, 49)})

# %% [markdown]
# On the left, the share of time as it would be if that hour never ended; on the right, the chances of moving within
# a step of five minutes. What hardly ever happens is poorly known: nobody falls asleep in the afternoon here, and how
# long sleep would last if it were always midnight is anyone's guess, as the wide bands say.
#
# ## The nights
#
# Every visit to state 0 of at least an hour, with the times of the clock. The probability of being asleep, averaged
# over the draws, says how sure each row is.

# %%
events = posterior.events(data)
asleep = posterior.state_probabilities(data)[:, 0]
slept = events[(events["state"] == 0) & (events["end"] - events["start"] >= 60 // EVERY)]
nights = pd.DataFrame({"asleep": clock[slept["start"]], "awake": clock[slept["end"] - 1]})
nights["hours"] = ((slept["end"] - slept["start"]) * EVERY / 60).round(1).to_numpy()
print(nights.head())

# %%
figure, (trace, sure) = plt.subplots(2, 1, figsize=(10, 4.2), layout="constrained", sharex=True, height_ratios=(2, 1))
shown = slice(0, 3 * 24 * 60 // EVERY)
trace.plot(clock[shown], counts[shown], linewidth=0.6, color="0.4")
for _, each in nights.iterrows():
    if each["asleep"] < clock[shown][-1]:
        trace.axvspan(each["asleep"], each["awake"], color="tab:blue", alpha=0.25)
trace.set(ylabel="counts in 5 minutes", title="three days, with what was found to be sleep")
sure.plot(clock[shown], asleep[shown], color="tab:blue")
sure.set(ylabel="P(asleep)", ylim=(-0.05, 1.05))

# %% [markdown]
# ## Against the truth
#
# The share of steps that are named rightly, beside that of a common rule: asleep is who has fewer than 40 counts. The
# expected hours of sleep are the sum of the probabilities.

# %%
right = np.mean(posterior.decode(data) == awake)
rule = np.mean((counts >= 40) == awake)
print(f"{right:.1%} of the steps are named rightly; by the rule of 40 counts {rule:.1%}")
print(f"hours asleep: {asleep.sum() * EVERY / 60:.1f}, in truth {np.sum(awake == 0) * EVERY / 60:.1f}")

# %% [markdown]
# Several people in one table have a column that tells them apart: `lh.open_data(table, columns="counts",
# covariates=["hour"], group="person")`. From the command line: `longhmm fit night.csv --columns counts --group person
# --states 2 --emission negative-binomial --transitions "~ cos(2 * pi * hour / 24)"`. EEG in EDF
# files is opened by name.

# %%
assert verdict.kind == "trust"
assert right > 0.97 and right > rule + 0.02
assert 10 <= len(nights) <= 30
