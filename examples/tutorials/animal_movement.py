# %% [markdown]
# # Animal movement: from a track to behaviour
#
# An animal that is looking for food takes short steps and turns at every one; on its way elsewhere it takes long
# steps straight ahead. The places are recorded, the behaviour is not: that is the hidden state. The tracks are
# those of moveHMM's example, three "wild haggises" with the slope and the temperature where they went, whose
# maximum-likelihood estimates are published; where the file is not at hand, tracks like them are simulated.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import longhmm as lh
from longhmm_reproduction.channels import data_folder

movement = lh.Product(step=lh.GammaMoments(), angle=lh.VonMises())
file = data_folder() / "regression" / "haggis.csv"
if file.is_file():
    places = pd.read_csv(file)[["ID", "x", "y", "slope", "temp"]]
else:
    truth = {"transition": [[0.85, 0.15], [0.12, 0.88]], "step_mean": [1.0, 5.0], "step_sd": [0.5, 3.0]}
    truth |= {"angle_loc": [3.1, -0.3], "angle_concentration": [1.0, 9.0]}
    rng, tracks = np.random.default_rng(0), []
    for animal in (1, 2, 3):
        step, angle = lh.simulate(lh.HMM(2, movement), truth, 400, seed=animal)[1].T
        ways = np.cumsum(step * np.exp(1j * np.cumsum(angle)))
        weather = {"slope": rng.uniform(0, 40, 400), "temp": rng.normal(10, 3, 400)}
        tracks.append(pd.DataFrame({"ID": animal, "x": ways.real, "y": ways.imag, **weather}))
    places = pd.concat(tracks, ignore_index=True)
print(places.head(3))

# %% [markdown]
# ## Steps and turns
#
# `lh.steps_and_angles` makes them of coordinates, one animal at a time. The first and the last place of a track
# have no turn: NaN, which is a missing value like any other.

# %%
moves = [lh.steps_and_angles(own["x"], own["y"]) for _, own in places.groupby("ID")]
table = places.assign(step=np.concatenate(moves)[:, 0], angle=np.concatenate(moves)[:, 1])
data = lh.open_data(table, columns=["step", "angle"], covariates=["temp", "slope"], group="ID")
print(data)

# %% [markdown]
# ## Two kinds of movement
#
# A family for each column: gamma distributions of steps, with a mean and a standard deviation, and von Mises
# distributions of angles. Every animal is a sequence of its own, named by its `ID`; the number is never taken for
# something that was observed.

# %%
posterior = lh.sample(lh.HMM(2, movement), data, chains=2, draws=200, seed=0, progress=False)
print(posterior.summary())

# %% [markdown]
# State 0 is the search: steps of about 1, turns that go round. State 1 is the journey. moveHMM's maximum of the
# likelihood has steps of 0.998 and 5.010, and stays with probabilities 0.850 and 0.881.
#
# ## The tracks, by state

# %%
path = posterior.decode(data)
figure, panels = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for axes, (animal, own) in zip(panels, places.groupby("ID"), strict=True):
    axes.plot(own["x"], own["y"], color="0.75", linewidth=0.6)
    for state, hue, what in ((0, "#0072B2", "searching"), (1, "#D55E00", "travelling")):
        here = own[path[own.index] == state]
        axes.plot(here["x"], here["y"], ".", color=hue, markersize=3, label=what)
    axes.set(title=f"animal {animal}", aspect="equal", xlabel="x")
panels[0].legend(frameon=False, markerscale=3)

# %% [markdown]
# ## What the slope does
#
# `transitions="~ ..."` lets every step have a transition matrix of its own. The curve is the share of time that
# each state would have if slope and temperature stayed as they are, with 90 % intervals.

# %%
terrain = lh.HMM(2, movement, transitions="~ temp + slope + I(slope**2)")
hilly = lh.sample(terrain, data, chains=2, draws=200, seed=0, progress=False)
grid = {"slope": np.linspace(0, 40, 41), "temp": np.full(41, 10.0)}
lh.plots.along(hilly, "slope", grid)

# %% [markdown]
# ## Does it predict better?
#
# By log likelihoods at the posterior means, which are not comparable with one another as they stand: the second
# model has six coefficients more. A difference of many units is not explained by six.

# %%
for name, each in (("constant", posterior), ("by slope and temperature", hilly)):
    print(f"{name:25} {lh.log_likelihood(each.model, each.mean_params(), data):,.1f}")

# %% [markdown]
# From a terminal: `longhmm fit haggis.csv --states 2 --emission step=gamma-moments,angle=von-mises --group ID --out
# run`, and with `--transitions '~ temp + slope + I(slope**2)'` for the second. More on formulas, also in emissions:
# [Covariates](../covariates.md); [coming from moveHMM](../coming_from/movehmm.md) translates its words.

# %%
steps = posterior.draws["step_mean"].mean(("chain", "draw"))
assert 0.7 < float(steps[0]) < 1.3 and 4 < float(steps[1]) < 6
assert set(np.unique(path)) == {0, 1}
