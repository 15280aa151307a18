"""A model from the words of the command line."""

from __future__ import annotations

import ast
from typing import Any

import jax
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.emissions import registry
from longhmm.model.hmm import HMM
from longhmm.model.serialise import PRIORS, prior_from_config
from longhmm.model.transitions import Sticky


def build_model(name: str, n_states: int, data: Sequences, *, priors: list[str], stay: float | None) -> HMM:
    """The model that was asked for."""
    emission = registry.from_name(name, data, **dict(parse_prior(text) for text in priors))
    if stay is not None and not stay > 0:
        raise ModelError(f"--stay must be a positive number, got {stay:g}.")
    return HMM(n_states, emission, transition_prior=1.0 if stay is None else Sticky(stay=stay))


def parse_prior(text: str) -> tuple[str, Any]:
    """`name=Normal(0, 1)` or `name=4` as the name and its prior or fixed value; only known names are ever called."""
    name, found, right = text.partition("=")
    name = name.strip()
    wrong = ModelError(
        f"--prior must look like 'loc=Normal(0, 10)' or 'df=4', with one of {', '.join(sorted(PRIORS))}; got {text!r}."
    )
    if not found or not name.isidentifier():
        raise wrong
    try:
        tree = ast.parse(right.strip(), mode="eval").body
        if not isinstance(tree, ast.Call):
            return name, _numbers(tree)
        kind = tree.func.id if isinstance(tree.func, ast.Name) else ""
        names = PRIORS.get(kind)
        if names is None:
            raise wrong
        args = dict(zip(names, (_numbers(each) for each in tree.args), strict=False))
        args |= {str(each.arg): _numbers(each.value) for each in tree.keywords}
        if len(tree.args) > len(names) or set(args) != set(names):
            raise ModelError(f"--prior {name}={kind}(...) needs the numbers {', '.join(names)}; got {text!r}.")
        with jax.enable_x64(True):
            return name, prior_from_config({"distribution": kind, "args": args})
    except (SyntaxError, ValueError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise wrong from None


def _numbers(node: ast.expr) -> Any:
    """A number, or lists of numbers: the only values that a prior may have."""
    value = ast.literal_eval(node)
    if np.asarray(value).dtype.kind not in "iuf":
        raise ValueError("not a number")
    return value
