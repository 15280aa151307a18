# %% [markdown]
# # Solar flares: events in a drifting background
#
# Satellites measure the X-rays of the sun minute by minute. Flares rise within minutes and decay within an hour,
# above a background that drifts by the day. The data are those of GOES-15 in September 2017, which saw the strongest
# flare of its solar cycle; where they are not at hand, weeks like them are simulated.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import longhmm as lh
from longhmm_reproduction.channels import data_folder

file = data_folder() / "goes_xrs" / "goes15_1min.npz"
if file.is_file():
    stored = np.load(file)
    flux = pd.Series(stored["xl"].astype(float), pd.to_datetime(stored["time"])).loc["2017-09-01":"2017-09-20"]
else:
    rng = np.random.default_rng(0)
    minutes = np.arange(20 * 1440)
    flux = 3e-7 * np.exp(0.5 * np.sin(minutes / 5000))
    for start in rng.choice(minutes, 60, replace=False):
        flux[start:] += 10 ** rng.uniform(-6, -4) * np.exp(-(minutes[start:] - start) / 25)
    flux = pd.Series(
        flux * np.exp(0.03 * rng.normal(size=len(flux))), pd.date_range("2017-09-01", periods=len(flux), freq="min")
    )
log_flux = np.log10(flux.where(flux > 1.1e-9))  # smaller numbers stand for no measurement
print(log_flux.describe().round(2))

# %% [markdown]
# ## Take the background away
#
# Levels of the flux itself mean little: what counts is the excess over the median of the day around. Missing minutes
# stay missing (NaN): nothing has to be filled in.

# %%
excess = log_flux - log_flux.rolling(1440, center=True, min_periods=60).median()
excess = excess.where(excess > -0.3)  # the earth in front of the sun
values = excess.to_numpy()
print(f"{len(values):,} minutes, {np.isnan(values).mean():.1%} of them missing")

# %% [markdown]
# ## Four levels
#
# Flares lie far above the background. The other levels are for its ups and downs, and for flares that fade.

# %%
posterior = lh.sample(lh.HMM(4, lh.Gaussian()), values, draws=500, seed=0, progress=False)
print(posterior.summary().loc[[f"mean[{state}]" for state in range(4)]])

# %% [markdown]
# ## The flares
#
# Every visit to the highest level is an event. The strongest, by the flux at its peak:

# %%
events = posterior.events(values)
flares = events[events["state"] == 3].copy()
flares["time"] = flux.index[flares["start"]]
flares["minutes"] = flares["end"] - flares["start"]
flares["peak"] = [flux.iloc[start:end].max() for start, end in zip(flares["start"], flares["end"], strict=True)]
print(f"{len(flares)} flares")
print(flares.nlargest(5, "peak")[["time", "minutes", "peak"]].to_string(index=False))
figure, axes = plt.subplots(figsize=(10, 3.2), layout="constrained")
axes.semilogy(flux.index, flux.where(flux > 1.1e-9), linewidth=0.5, color="#888888")
for start, end in zip(flares["start"], flares["end"], strict=True):
    axes.semilogy(flux.index[start:end], flux.iloc[start:end], linewidth=1.5, color="#D55E00")
axes.set(ylabel="X-ray flux (W/m²)", title="minutes in the highest state")

# %% [markdown]
# ## How far to trust it
#
# A flare decays; a state with a constant level does not. As a detector of events the model serves all the same; its
# intervals should not be quoted. The verdict says so, too:

# %%
verdict = posterior.diagnose(values)
print(verdict)

# %%
assert verdict.kind == "the model does not fit"
assert 5 < len(flares) < 300
assert flares["peak"].max() > 1e-5
