"""Observations that an emission cannot have produced, found on the host before any window is run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpyro.distributions.constraints import Constraint

from longhmm.errors import DataError
from longhmm.model.support import in_words


def check_dim(dim: int, expected: int, owner: str) -> None:
    """Refuse data with another number of features than the emission has."""
    if dim != expected:
        raise DataError(
            f"The data have {dim} feature(s), but the {owner} emission has dim={expected}: choose the "
            f"columns to use, or build the emission with dim={dim}."
        )


def check_values(
    values: np.ndarray,
    observed: np.ndarray,
    inside: np.ndarray,
    support: Constraint,
    owner: str,
    describe: Callable[[int], str],
) -> None:
    """Report the first observed entry that is not `inside`; `inside` is (n, D), or (n,) for whole rows."""
    bad = observed & ~inside if inside.ndim == 2 else observed.all(-1) & ~inside
    if not bad.any():
        return
    first = int(np.flatnonzero(bad.any(-1) if bad.ndim == 2 else bad)[0])
    if bad.ndim == 2:
        feature = int(np.flatnonzero(bad[first])[0])
        shown = f"{values[first, feature]:.10g}" + (f" in feature {feature}" if values.shape[1] > 1 else "")
    else:
        shown = np.array2string(values[first], precision=6)
    raise DataError(
        f"{describe(first)} is {shown}, but a {owner} emission needs {in_words(support)}: correct the "
        "value, replace it by NaN to mark it as missing, or choose another emission."
    )


def inside_support(support: Constraint, values: np.ndarray, *, by_state: bool, vector: bool) -> np.ndarray:
    """Whether values (n, D) lie in the support of at least one state: (n, D), or (n,) for a multivariate support."""
    if not by_state:
        return np.asarray(support(values))
    if values.shape[1] == 1 and not vector:  # bounds (K,) against values (n, 1)
        return np.any(np.asarray(support(values)), axis=1, keepdims=True)
    return np.asarray(np.any(np.asarray(support(values[:, None, :])), axis=1))
