"""A sampler that tunes itself, in one file: nothing else knows of it."""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.samplers import register
from longhmm.samplers.contract import Info, Sampler, all_finite


class State(NamedTuple):
    coordinates: dict


@register("toy-langevin")
@dataclass(frozen=True)
class Langevin(Sampler):
    """u' = u + h s^2 g + N(0, 2 h s^2), with h = `step_size`, and a scale s that `tune` takes from the data."""

    step_size: float = 0.02
    scale: float | None = None
    name: ClassVar[str] = "toy Langevin"
    learned: ClassVar[tuple[str, ...]] = ("scale",)

    def tune(self, target, start):
        return replace(self, scale=np.float32(target.sequences.length**-0.5))

    def init(self, target, key, u):
        return State(dict(u))

    def step(self, target, key, state, minibatch):
        gradient, size = target.estimate(state.coordinates, minibatch).gradient, self.step_size * self.scale**2
        keys = dict(zip(gradient, jax.random.split(key, len(gradient)), strict=True))
        noise = {name: jax.random.normal(keys[name], u.shape, u.dtype) for name, u in state.coordinates.items()}
        after = {k: u + size * gradient[k] + jnp.sqrt(2 * size) * noise[k] for k, u in state.coordinates.items()}
        return State(after), Info(gradient, all_finite(after))


def test_it_goes_through_the_whole_product(tmp_path):
    lh.testing.check_sampler(Langevin())
    model, params = lh.HMM(2, lh.Poisson()), {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    y = lh.simulate(model, params, 2000, seed=1)[1]
    how = {"sampler": Langevin(), "init": params, "chains": 2, "warmup": 50, "thin": 2, "progress": False}
    rate = (posterior := lh.sample(model, y, draws=60, **how)).draws["rate"]
    assert abs(rate.mean(("chain", "draw")) - params["rate"]).max() < 0.5 and float(rate.std("draw").min()) > 0
    assert posterior.decode(y).shape == (2000,) and posterior.forecast(y, 3, draws=2).mean.shape == (3, 1)
    assert np.isfinite(posterior.score(y, draws=2).log_density)
    lh.sample(model, y, draws=20, checkpoint=tmp_path / "state", **how).save(tmp_path / "run")
    loaded = lh.load(tmp_path / "run").extend(20, y, progress=False)  # goes on from the checkpoint
    np.testing.assert_array_equal(loaded.draws["rate"], rate[:, :40])
    np.save(tmp_path / "y.npy", y)
    command = f"fit {tmp_path}/y.npy --states 2 --emission poisson --sampler toy-langevin --draws 20"
    assert CliRunner().invoke(app, [*command.split(), "--out", str(tmp_path / "cli")]).exit_code == 0
