"""How large the package is: no larger than its ceilings, which are only ever lowered, until they reach the aims.

The paper's experiments, a package of their own, do not count.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "longhmm"
CPP = {".cc", ".h"}


class Limit(NamedTuple):
    """What the package may have of a kind today, and what it shall have."""

    ceiling: int
    aim: int


# Whoever makes the package smaller lowers the ceilings.
LIMITS = {
    "Python lines": Limit(28_300, 23_000),
    "Python files": Limit(182, 160),
    "C++ lines": Limit(2_200, 2_200),
    "lines of the longest file": Limit(400, 400),
}


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def count(source: Path) -> dict[str, int]:
    """What the package has of each kind."""
    python = [lines(path) for path in source.rglob("*.py")]
    cpp = [lines(path) for path in source.rglob("*") if path.suffix in CPP]
    return {
        "Python lines": sum(python),
        "Python files": len(python),
        "C++ lines": sum(cpp),
        "lines of the longest file": max(python + cpp, default=0),
    }


@pytest.mark.parametrize("kind", LIMITS)
def test_the_package_stays_below_its_ceiling(kind):
    limit = LIMITS[kind]
    assert limit.ceiling >= limit.aim, "the aim was reached: the ceiling is the aim"
    assert count(SOURCE)[kind] <= limit.ceiling, f"too many {kind}; the aim is {limit.aim:,}"


def test_everything_is_counted(tmp_path):
    (tmp_path / "native").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n" * 3)
    (tmp_path / "native" / "b.py").write_text("x = 1\n")
    (tmp_path / "native" / "c.cc").write_text("\n" * 7)
    (tmp_path / "native" / "page.js").write_text("\n" * 70)
    expected = {"Python lines": 4, "Python files": 2, "C++ lines": 7, "lines of the longest file": 7}
    assert count(tmp_path) == expected
