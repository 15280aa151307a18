"""Whether what does not fit lies where states change: a filter rounds steps, which then look like states or outliers of
their own. What an instrument shows after a step is read off the data, as an option to try."""

from __future__ import annotations

from typing import Any

import numpy as np

from longhmm.posterior.diagnostics.drawn_path import DrawnPath

NEAR = 8  # rows
BEFORE, AFTER = 6, 10  # rows around a change that are averaged, where no other change is near
FEWEST = 30  # changes, and large residuals
LARGE = 3.0  # standard deviations
MANY = 5.0  # times as many large residuals near changes as there are elsewhere
BEGUN, SETTLED = 0.1, 0.02  # share of a step that counts as begun, and from which it counts as over


def at_changes(path: DrawnPath, residuals: np.ndarray, position: np.ndarray) -> str | None:
    """What to try where large residuals `(n,)`, of rows at these positions, lie near changes; None where they do not,
    or no option says it."""
    emission: Any = path.model.emission
    changes = np.flatnonzero((np.diff(path.states) != 0) & ~path.opens[1:]) + 1
    if emission.dim > 1 or not emission.takes_response or len(changes) < FEWEST:
        return None
    rows = np.searchsorted(path.position, position)
    following = np.searchsorted(changes, rows)
    ends = np.concatenate([[-(10**9)], changes, [10**9]])
    near = np.minimum(rows - ends[following], ends[following + 1] - rows) <= NEAR
    large = np.abs(residuals) > LARGE
    inside, outside = (np.sum(large & each) / max(np.sum(each & np.isfinite(residuals)), 1) for each in (near, ~near))
    if large.sum() < FEWEST or not inside > MANY * outside:
        return None
    where = f"{100 * np.sum(large & near) / large.sum():.0f} % of those beyond {LARGE:g} sd lie near changes of state"
    steps = read_response(path, changes)
    inner = getattr(emission, "emission", emission)
    known = np.asarray(inner.shown(path.params)) if hasattr(inner, "shown") else np.ones(1)
    if len(steps) == 1 or (len(known) > 1 and _same(steps, known)):
        return f"nothing more if that does not matter, since {where}, where a step falls between two samples"
    listed = ", ".join(f"{each:.4g}" for each in steps)
    call = f"lh.{emission.call}response=lh.StepResponse([{listed}]))"
    return f"{call}, on the command line --response {listed.replace(' ', '')}, since {where}"


def read_response(path: DrawnPath, changes: np.ndarray) -> np.ndarray:
    """What is shown after a step from 0 to 1, sample by sample: the mean over changes that stand alone."""
    gaps = np.diff(np.concatenate([[-1], changes, [len(path.states)]]))
    opens = np.flatnonzero(path.opens)
    alone = changes[(gaps[:-1] > BEFORE + AFTER) & (gaps[1:] > BEFORE + AFTER)]
    since = alone - opens[np.searchsorted(opens, alone, side="right") - 1]
    alone = alone[(since > BEFORE) & (alone + AFTER < len(path.states))]
    if len(alone) < FEWEST:
        return np.ones(1)
    around = alone[:, None] + np.arange(-BEFORE, AFTER)
    rows = path.part.rows(0, path.part.length)
    shown = np.where(rows.observed[:, 0], rows.values[:, 0], np.nan)[around].astype(np.float64)
    before, after = shown[:, :2].mean(axis=1), shown[:, -4:].mean(axis=1)
    usual = np.nanmedian(np.abs(after - before))
    size = np.where(after > before, usual, -usual)  # of steps of about one size; others would count for more
    share = np.nanmean((shown - before[:, None]) / size[:, None], axis=0)
    share = share / share[-4:].mean()
    begin = int(np.argmax(share > BEGUN))
    last = int(np.flatnonzero(np.abs(share - 1) > SETTLED).max(initial=begin - 1))
    return np.append(share[begin : last + 1].round(2), 1.0)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    size = max(len(one), len(other))
    padded = [np.pad(each, (0, size - len(each)), constant_values=1.0) for each in (one, other)]
    return bool(np.abs(padded[0] - padded[1]).max() < 0.05)
