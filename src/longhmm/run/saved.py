"""A run's progress as arrays and back: what a checkpoint holds between two blocks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from longhmm.run.driver import Progressed


def to_arrays(run: Progressed) -> dict[str, np.ndarray]:
    """States, draws and statistics by position in their trees."""
    arrays = {"steps": np.asarray(run.steps), "alive": np.asarray(run.alive)}
    for chain, state in enumerate(run.states):
        for position, leaf in enumerate(jax.tree.leaves(state)):
            arrays[f"state_{chain}_{position}"] = np.asarray(leaf)
    if run.recorded:
        for position, leaf in enumerate(jax.tree.leaves(run.draws_tree())):
            arrays[f"draws_{position}"] = leaf
        for name, values in run.stats_tree().items():
            arrays[f"stat_{name}"] = values
    return arrays


def from_arrays(arrays: dict[str, np.ndarray], fresh: Progressed, kept: Any) -> Progressed:
    """The saved progress; `fresh` and `kept` (one record) give the shapes of the trees."""

    def like(tree: Any, prefix: str) -> Any:
        positions = range(len(jax.tree.leaves(tree)))
        return jax.tree.unflatten(jax.tree.structure(tree), [arrays[f"{prefix}_{each}"] for each in positions])

    states = [like(state, f"state_{chain}") for chain, state in enumerate(fresh.states)]
    run = Progressed(states, int(arrays["steps"]), alive=[bool(each) for each in arrays["alive"]])
    if "draws_0" in arrays:
        run.recorded = [like(kept, "draws")]
        names = [name for name in arrays if name.startswith("stat_")]
        run.stats = [{name.removeprefix("stat_"): arrays[name] for name in names}]
    return run
