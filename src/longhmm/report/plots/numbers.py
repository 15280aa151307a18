"""Numbers as people write them."""

from __future__ import annotations

import math

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 4) -> str:
    """A number with `digits` digits that matter; very large and very small ones with a power of ten."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    power = math.floor(math.log10(abs(rounded)))
    if -5 <= power < 7:
        return f"{rounded:,.{max(0, digits - 1 - power)}f}".replace("-", "−")
    mantissa = f"{rounded / 10.0**power:.{digits - 1}f}".replace("-", "−")
    return f"{mantissa}×10{str(power).translate(_RAISED)}"


def digits_for(low: float, high: float, least: int = 3, most: int = 7) -> int:
    """So many digits that the ends of an interval differ in the last two of them."""
    size, width = max(abs(low), abs(high)), high - low
    if not (width > 0 and math.isfinite(size)):
        return 4
    return int(min(max(math.ceil(math.log10(size / width)) + 1, least), most))


def with_sd(mean: float, sd: float) -> str:
    """`mean ± sd`, the mean to the last digit of the sd that matters."""
    if not (sd > 0 and math.isfinite(mean) and math.isfinite(sd)):
        return number(mean)
    digits = 2 + max(0, math.floor(math.log10(max(abs(mean), sd))) - math.floor(math.log10(sd)))
    return f"{number(mean, min(digits, 9))} ± {number(sd, 2)}"
