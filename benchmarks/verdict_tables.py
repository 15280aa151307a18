"""Tables of the verdict's trials, and whether they meet the aims: right models are seldom called wrong, and troubles
that matter are nearly always seen.

A trouble matters if it moves a 90 % interval by half its width, 1.64 posterior sd. How far intervals are moved is the
root mean square over data sets of (posterior mean - truth) / posterior sd, of the worst parameter, less the 1 that an
honest one has.
"""

import re
from collections import Counter
from typing import Any

REASONS = {  # what a reason is known by
    "correlated": "are correlated",
    "distribution": "not distributed as",
    "tails": "lie beyond",
    "levels": "has one level for all",
    "spread": "spread differently",
    "shape": "skewness|kurtosis|are cut off",
    "dwell times": "do not last as",
    "transitions": "transition\\[.*(changes|differs)",
    "held out": "probable, given all others",
    "scatter": "scatter more",
}
HEADINGS = ("run longer", "too many states", "biased", "another mode is as good", "timed out", "failed")
UNFINISHED = ("timed out", "failed")
HALF_WIDTH = 1.645  # of a 90 % interval of a normal posterior, in sd
MOST_FALSE, LEAST_POWER = 0.01, 0.95

Row = dict[str, Any]


def reasons_in(sentence: str) -> list[str]:
    return [name for name, text in REASONS.items() if re.search(text, sentence)]


def summary(trials: list[Row]) -> list[Row]:
    """One row per case and strength."""
    cases: dict[tuple[str, str | None], list[Row]] = {}
    for one in trials:
        cases.setdefault((one["name"], one["strength"]), []).append(one)
    rows = []
    for (name, strength), found in cases.items():
        inside = [one["inside"] for one in found if one["inside"] is not None]
        rows.append({
            "name": name, "strength": strength, "fits": len(found),
            "trust": sum(one["kind"] == "trust" for one in found),
            "kinds": dict(Counter(one["kind"] for one in found)),
            "reasons": {reason: sum(reason in one["kinds"] for one in found) for reason in REASONS},
            "error": errors([one["z"] for one in found if one["z"]]),
            "moved": moved([one["z"] for one in found if one["z"]]),
            "inside": sum(inside) / len(inside) if inside else None,
            "seconds": sum(one["seconds"] for one in found) / len(found),
        })  # fmt: skip
    return rows


def errors(found: list[dict[str, float]]) -> float | None:
    """Root mean square of errors of means, in posterior sd, over parameters and data sets."""
    squares = [z**2 for one in found for z in one.values()]
    return (sum(squares) / len(squares)) ** 0.5 if squares else None


def moved(found: list[dict[str, float]]) -> float | None:
    """By how many posterior sd the interval of the worst parameter is off, beyond what an honest one is by chance."""
    names = {name for one in found for name in one}
    if not names:
        return None
    each = [[one[name] ** 2 for one in found if name in one] for name in names]
    return max(max(sum(squares) / len(squares) - 1.0, 0.0) ** 0.5 for squares in each)


def ended(row: Row) -> int:
    return int(row["fits"] - sum(row["kinds"].get(name, 0) for name in UNFINISHED))


def seen(row: Row) -> float:
    """Share of the fits that came to an end in which something was seen."""
    return 1.0 - row["trust"] / ended(row) if ended(row) else float("nan")


def lower(row: Row) -> float:
    """What is seen at least, with a confidence of 95 % (Clopper and Pearson, one-sided)."""
    from scipy.stats import beta

    count, total = ended(row) - row["trust"], ended(row)
    return float(beta.ppf(0.05, count, total - count + 1)) if count else 0.0


def matters(row: Row) -> bool:
    return row["moved"] is not None and row["moved"] >= HALF_WIDTH


def tables(rows: list[Row], right: list[str], troubles: list[tuple[str, str | None]]) -> str:
    """Right models, troubles, and what the aims say of both, for the cases that there are rows of."""
    found = {(row["name"], row["strength"]): row for row in rows}
    well = [found[name, None] for name in right if (name, None) in found]
    wrong = [found[each] for each in troubles if each in found]
    return "\n".join([*right_table(well), "", *trouble_table(wrong), "", *judged(well, wrong)])


def right_table(rows: list[Row]) -> list[str]:
    columns = ["fits", *HEADINGS, *REASONS, "trust"]
    lines = [
        "| right model | " + " | ".join(columns) + " | error of means (sd) | 90 % intervals cover |",
        "|---|" + "---|" * (len(columns) + 2),
    ]
    total = dict.fromkeys(columns, 0)
    for row in rows:
        counts = {name: row["kinds"].get(name, 0) for name in HEADINGS} | row["reasons"]
        counts = {"fits": row["fits"], **counts, "trust": row["trust"]}
        total = {name: total[name] + counts[name] for name in columns}
        numbers = [*map(str, counts.values()), shown(row["error"], ".2f"), percent(row["inside"])]
        lines.append(f"| {row['name']} | {' | '.join(numbers)} |")
    return [*lines, "| **all** | " + " | ".join(f"**{value}**" for value in total.values()) + " | | |"]


def trouble_table(rows: list[Row]) -> list[str]:
    lines = [
        "| trouble | strength | fits | seen | at least | by | error of means (sd) | 90 % intervals cover | "
        "moves an interval (sd) | matters |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        by = {name: count for name, count in {**row["kinds"], **row["reasons"]}.items() if count}
        named = [f"{name} {count}" for name, count in by.items() if name not in ("trust", "the model does not fit")]
        numbers = [shown(row["error"], ".1f"), percent(row["inside"]), shown(row["moved"], ".1f")]
        mark = "yes" if matters(row) else ("" if row["moved"] is None else "no")
        lines.append(
            f"| {row['name']} | {row['strength']} | {row['fits']} | {percent(seen(row))} | {percent(lower(row))} | "
            f"{', '.join(named)} | "
            f"{' | '.join(numbers)} | {mark} |"
        )
    return lines


def judged(right: list[Row], troubles: list[Row]) -> list[str]:
    """What the tables say of the aims, a sentence each."""
    from scipy.stats import beta

    total = sum(map(ended, right))
    wrong = total - sum(row["trust"] for row in right)
    lines = []
    if total:
        upper = beta.ppf(0.95, wrong + 1, total - wrong) if wrong < total else 1.0
        holds = "reached" if wrong / total <= MOST_FALSE else "missed"
        lines.append(
            f"Right models: {wrong} of {total} fits were given a reason for distrust, {100 * wrong / total:.2f} % "
            f"(below {100 * upper:.1f} % with a confidence of 95 %); the aim, at most {100 * MOST_FALSE:g} %, is "
            f"{holds}."
        )
    weighty = [row for row in troubles if matters(row)]
    missed = [row for row in weighty if not seen(row) >= LEAST_POWER]
    if weighty:
        lines += [
            "",
            f"Troubles that move a 90 % interval by half its width: {len(weighty)} of {len(troubles)}; seen in at "
            f"least {100 * LEAST_POWER:g} % of fits: {len(weighty) - len(missed)}, and with a confidence of 95 % "
            f"each: {sum(lower(row) >= LEAST_POWER for row in weighty)}.",
        ]
        lines += [f"\nMissed: {row['name']} {row['strength']}, seen in {percent(seen(row))}." for row in missed]
    return lines


def shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def percent(share: float | None) -> str:
    return "" if share is None or share != share else f"{100 * share:.0f} %"
