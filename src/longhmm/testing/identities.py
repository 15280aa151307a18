"""Whether an identity holds; the first one that does not is named in a sentence."""

from typing import Any

import numpy as np


def require(holds: bool, identity: str) -> None:
    if not holds:
        raise AssertionError(f"{identity[0].upper()}{identity[1:]}.")


def finite(values: Any, identity: str) -> None:
    require(bool(np.isfinite(np.asarray(values)).all()), identity)


def close(found: Any, expected: Any, identity: str) -> None:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    require(found.shape == expected.shape, f"{identity} (shapes {found.shape} and {expected.shape})")
    with np.errstate(invalid="ignore"):
        gap = np.where(found == expected, 0.0, np.abs(found - expected))
        holds = bool(np.all(gap <= 1e-8 * (1 + np.abs(expected))))
    require(holds, f"{identity} (largest difference {np.max(gap, initial=0.0):.3g})")
