"""Every experiment by name. Each is imported when it runs."""

from __future__ import annotations

import importlib
from typing import Any

from longhmm.run.compilation import cached_compilation

_WHERE = {
    "dd": "simulated",
    "rc": "simulated",
    "rc-hard": "simulated",
    "lognormal": "lognormal",
    "ion": "ion",
    "variational": "variational",
}
NAMES = tuple(_WHERE)
SCALES = ("tiny", "small", "paper")


def run(name: str, scale: str, seed: int = 0) -> dict[str, Any]:
    """Run one experiment: `{"experiment", "settings", "results"}`, and the curves behind them."""
    module = importlib.import_module(f"longhmm.experiments.{_WHERE[name]}")
    with cached_compilation():
        return dict(module.run(name, scale, seed))
