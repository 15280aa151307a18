"""What must hold, and the sentence that is said where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np


def require(holds: bool, identity: str) -> None:
    if not holds:
        raise AssertionError(f"{identity[0].upper()}{identity[1:]}.")


def close(found: Any, expected: Any, identity: str) -> None:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where(found == expected, 0.0, np.abs(found - expected))
        holds = found.shape == expected.shape and bool(np.all(gap <= 1e-8 * (1 + np.abs(expected))))
    largest = f" (largest difference {np.max(gap):.3g})" if found.shape == expected.shape and gap.size else ""
    require(holds, identity + largest)
