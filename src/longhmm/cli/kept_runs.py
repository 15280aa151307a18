"""The runs behind a comparison: each a directory of its own, which `report`, `decode` and `view` open."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longhmm.cli.output import Output, seconds

if TYPE_CHECKING:
    from longhmm.model.hmm import HMM
    from longhmm.posterior.posterior import Posterior


class KeptRuns:
    """A directory for each model, named like it (`2-states`), made before anything is computed."""

    def __init__(self, out: Path, overwrite: bool, request: Mapping[str, Any], models: Mapping[str, HMM]) -> None:
        from longhmm.model.serialise import model_to_config
        from longhmm.posterior.run_directory import RunDirectory

        self.names = {id(model): name for name, model in models.items()}
        places = folders(list(models))
        self.runs = {
            name: RunDirectory.create(
                out / places[name], {**request, "model": model_to_config(model)}, overwrite=overwrite
            )
            for name, model in models.items()
        }
        self.posteriors: dict[str, Posterior] = {}

    def keep(self, model: HMM, posterior: Posterior) -> Posterior:
        name = self.names[id(model)]
        self.runs[name].save(posterior)
        self.posteriors[name] = posterior
        return posterior

    def show(self, said: Output) -> list[dict[str, Any]]:
        """The states of every model, and where its run is; the same as a document."""
        from longhmm.posterior.names import level_name
        from longhmm.posterior.summary import levels

        rows, found = [], []
        for name, posterior in self.posteriors.items():
            run = self.runs[name]
            table = levels(posterior, preprocessing=run.preprocessing).join(posterior.dwell(rate=run.model_rate))
            for state, each in table.iterrows():
                rows.append((name, state, float(each["level"]), _dwell(each), float(each["stationary"])))
            found.append({"model": name, "run": str(run.path), "states": table})
        if not found:  # stopped before the first was done
            return found
        unit = next(iter(self.runs.values())).unit
        named = level_name(next(iter(self.posteriors.values())), unit)
        heads = ["model", "state", named, "mean dwell", "occupancy"]
        said.table("States of each model", heads, rows)
        for each in found:
            said.say(f"Run of {each['model']}: {each['run']}")
        if len(found) > 1:
            said.say(f"Two side by side: longhmm report {found[0]['run']} --beside {found[1]['run']}")
        return found


def folders(names: Sequence[str]) -> dict[str, str]:
    """A folder for each model; a number ends those that differ in nothing but arrows, as 1 -> 2 and 1 <-> 2."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^\w.=]+", "-", name)
        free = (plain if n == 1 else f"{plain}-({n})" for n in itertools.count(1))
        found[name] = next(each for each in free if each not in found.values())
    return found


def _dwell(state: Mapping[str, float]) -> str | float:
    """A mean dwell time, in seconds where they are known; a model of one state never leaves it."""
    if math.isinf(state["dwell"]):
        return "never left"
    return seconds(state["dwell_s"]) if "dwell_s" in state else float(state["dwell"])
