"""Which state each observation comes from, as observations arrive."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, ImpossibleObservationError, ModelError, check_whole
from longhmm.inference.fixed_lag import Held, advance, arrived, settle
from longhmm.inference.scaling import safe_log
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.model.simulate import simulate
from longhmm.posterior.draws import Draws, in_float64
from longhmm.posterior.store import Place, damaged, write_text
from longhmm.target.buffer_length import LyapunovBuffer

SIZES = (1, 64, 2048)  # rows at a time, for each of which one program is compiled
SIMULATED = 20_000  # rows from which the lag is found where there are no data
FORMAT, VERSION = "longhmm online", 1


@dataclass(frozen=True)
class Update:
    """What new rows say; rows are numbered from the beginning of their sequence."""

    sequence: int  # how many sequences were finished before
    start: int  # the number of the first new row
    filtered: np.ndarray  # (n, K), P(x_t = k | y_0 .. y_t) of the new rows
    settled: int  # the number of the first row that is settled now
    smoothed: np.ndarray  # (m, K), P(x_t = k | y_0 .. y_{t+lag}), or of the end of a sequence P(x_t = k | all y)

    @property
    def states(self) -> np.ndarray:
        """`(m,)`, the most probable state of each row that is settled now."""
        return np.asarray(np.argmax(self.smoothed, axis=1))


class Online:
    """State probabilities of rows as they arrive, averaged over draws of the parameters; made by `posterior.online()`.

    Every row is filtered at once, and settled when `lag` further rows are there: what comes later hardly changes what
    is known of it.

    Attributes:
        lag: rows behind each from which it is smoothed.
        rows: how many rows of this sequence there were.
        sequence: how many sequences were finished.
    """

    def __init__(self, model: HMM, params: list[dict[str, np.ndarray]], lag: int) -> None:
        check_whole("lag", lag, 0)
        self.model, self.lag, self.rows, self.sequence = model, int(lag), 0, 0
        folds, inner, first = unfold(model, params[0])
        each = [first, *(unfold(model, other)[2] for other in params[1:])]
        self._memory, self._inner = folds, inner
        self._params = {name: np.stack([one[name] for one in each]) for name in first}
        self._before = np.full((model.lags, model.dim), np.nan)  # the rows before the next, the nearest first
        self._held = self._empty()

    def __repr__(self) -> str:
        n_draws = len(self._params["transition"])
        return f"Online({self.model.n_states} states, {n_draws} draws, rows are settled after {self.lag} more)"

    def _empty(self) -> Held:
        n_draws, k = self._params["initial"].shape
        by_pair = self._inner.emission.couples or self._inner.transitions.varies
        with np.errstate(divide="ignore"):
            start = np.log(self._params["initial"])
        steps = np.zeros((self.lag, n_draws, k if by_pair else 1, k))
        return Held(start, np.True_, np.zeros((self.lag, n_draws, k)), steps)

    def update(self, data: Any) -> Update:
        """Take further rows of the sequence; where one of them is refused, none is taken.

        Args:
            data: one row or many: a number, an array `(n,)` or `(n, D)`, or what `open_data` takes, with covariates
                where the model depends on them. NaN is missing.
        """
        sequences = self._opened(data)
        held, rows, before, parts, at = self._held, self.rows, self._before, [], 0
        while at < sequences.length:
            left = sequences.length - at
            size = SIZES[0 if left == 1 else 1 if left < SIZES[2] // 4 else 2]
            stop = min(at + size, sequences.length)
            piece = sequences.following(before).rows(at, stop, self.model.lags)
            self.model.check_rows(sequences, piece.values, piece.observed, at, piece.states)
            even = piece._replace(values=piece.values.astype(np.float64)).padded(size)
            held, *found, impossible = in_float64(_advance, self._inner, self._params, held, even, stop - at)
            if impossible >= 0:
                raise ImpossibleObservationError(
                    f"No reachable state can have produced {sequences.describe(at + int(impossible))}: its likelihood "
                    "is zero under the parameters of a draw; mark it as missing (NaN)."
                )
            fill = max(self.lag - rows, 0)  # what stands before the first row
            parts.append((found[0][: stop - at], found[1][fill : stop - at]))
            rows, at = rows + stop - at, stop
        start, settled = self.rows, max(self.rows - self.lag, 0)
        self._held, self.rows = held, rows
        self._before = self._last_rows(sequences)
        filtered, smoothed = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Update(self.sequence, start, self._folded(filtered), settled, self._folded(smoothed))

    def finish(self) -> Update:
        """End the sequence: its last rows are settled with all that was observed, and the next row begins another."""
        found = in_float64(_settle, self._inner, self._params, self._held)
        count = min(self.rows, self.lag)
        none = np.empty((0, self.model.n_states))
        ended = Update(self.sequence, self.rows, none, self.rows - count, self._folded(found[self.lag - count :]))
        self.rows, self.sequence, self._held = 0, self.sequence + 1, self._empty()
        self._before = np.full_like(self._before, np.nan)
        return ended

    def save(self, path: Place) -> None:
        """Write all that was made of the rows so far to a JSON file; `posterior.online(restore=path)` goes on."""
        named = {**self._held._asdict(), "before": self._before}
        document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "of": self._fingerprint(), "lag": self.lag}
        document |= {"draws": len(self._params["transition"]), "rows": self.rows, "sequence": self.sequence}
        document["arrays"] = {name: _to_text(value) for name, value in named.items()}
        write_text(Path(path), json.dumps(document), "choose another place")

    def _restore(self, path: Place, document: Mapping[str, Any]) -> None:
        if document.get("of") != self._fingerprint():
            raise DataError(f"{path} was written by another posterior, or another number of draws; restore it there.")
        try:
            found = {name: _from_text(document["arrays"][name]) for name in (*Held._fields, "before")}
            self.rows, self.sequence = int(document["rows"]), int(document["sequence"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _unsound(path) from None
        before, held = found.pop("before"), Held(**{**found, "fresh": found["fresh"] > 0})
        if [each.shape for each in (*held, before)] != [np.shape(each) for each in (*self._held, self._before)]:
            raise _unsound(path)
        self._held, self._before = held, before

    def _opened(self, data: Any) -> Sequences:
        given = np.atleast_1d(data) if isinstance(data, int | float | np.number) else data
        sequences = self.model.opened(given, self.rows)
        self.model.check_dim(sequences)
        if sequences.n_sequences > 1:
            raise DataError(
                f"update takes rows of one sequence, but {sequences.name} has {sequences.n_sequences}; call finish() "
                "where one ends."
            )
        return sequences

    def _last_rows(self, sequences: Sequences) -> np.ndarray:
        """The rows that the next one looks back at, of these and of those before them."""
        lags = self.model.lags
        if not lags:
            return self._before
        block = sequences.rows(max(sequences.length - lags, 0), sequences.length)
        own = np.where(block.observed, block.values, np.nan)[::-1]
        return np.concatenate([own, self._before])[:lags]

    def _folded(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(self._memory.fold(values))

    def _fingerprint(self) -> str:
        """Of the parameters, with which alone what is held means something."""
        content = b"".join(name.encode() + self._params[name].tobytes() for name in sorted(self._params))
        return hashlib.sha256(content).hexdigest()


class Arriving(Draws):
    """Draws that say which state new observations come from, as they arrive."""

    def online(
        self,
        data: Any = None,
        *,
        lag: int | None = None,
        tolerance: float = 1e-3,
        draws: int = 20,
        restore: Place | None = None,
    ) -> Online:
        """Begin to follow a recording as it is made: `live.update(rows)` then says what new rows are.

        Args:
            data: a recording like the one that will arrive, from which the lag is found; by default the data of the
                run, and after loading a simulation from the model.
            lag: rows behind each after which it is settled; found by the rule for buffers if left out.
            tolerance: what later rows may still change of the probabilities of a settled one, as an L1 distance, at
                19 of 20 rows.
            draws: evenly spaced draws, over which probabilities are averaged.
            restore: a file that `Online.save` wrote, to go on from there; lag and draws are those of the file.
        """
        document = None if restore is None else _read(restore)
        if document is not None:
            lag, draws = document["lag"], document["draws"]
        if lag is None:
            lag = self._settling(data, tolerance)
        live = Online(self.model, list(self.iterate(draws)), lag)
        if document is not None and restore is not None:
            live._restore(restore, document)
        return live

    def _settling(self, data: Any, tolerance: float) -> int:
        """The lag after which messages have forgotten where they began, by the Lyapunov rule (F13)."""
        if data is None and self.run is None and self.model.transitions.varies:
            raise ModelError("lag must be given, or data from which it is found, where transitions follow covariates.")
        centre = self.centre
        if data is None:
            data = simulate(self.model, centre, SIMULATED)[1] if self.run is None else self.run.request.sequences
        rule = LyapunovBuffer(tolerance)
        return min(rule.estimate(self.model, centre, self.model.opened(data)).needed, rule.longest)


@jax.jit
def _advance(
    model: HMM, params: Mapping[str, jax.Array], held: Held, rows: Rows, count: jax.Array
) -> tuple[Held, jax.Array, jax.Array, jax.Array]:
    """What is held then; probabilities, filtered and smoothed, averaged over draws; the first impossible row, or -1."""
    potentials = jax.vmap(partial(model.potentials, rows=rows))(params)
    new = arrived(potentials.transition, potentials.log_likelihood, model.emission.couples)
    held, log_filtered, smoothed, sizes = advance(held, new, count)
    impossible = jnp.isneginf(sizes).any(axis=1) & (jnp.arange(len(sizes)) < count)
    first = jnp.where(impossible.any(), jnp.argmax(impossible), -1)
    return held, jnp.exp(log_filtered).mean(axis=1), smoothed.mean(axis=1), first


@jax.jit
def _settle(model: HMM, params: Mapping[str, jax.Array], held: Held) -> jax.Array:
    by_row = jnp.zeros((len(params["transition"]), 1, 1))  # where matrices vary, they are part of what is held
    constant = by_row if model.transitions.varies else safe_log(jnp.asarray(params["transition"]))
    return settle(held, constant).mean(axis=1)


def _to_text(array: Any) -> dict[str, Any]:
    values = np.asarray(array, "<f8")
    return {"shape": list(values.shape), "float64": base64.b64encode(values.tobytes()).decode("ascii")}


def _from_text(entry: Mapping[str, Any]) -> np.ndarray:
    raw = base64.b64decode(entry["float64"], validate=True)
    return np.frombuffer(raw, "<f8").astype(np.float64).reshape(entry["shape"])


def _unsound(path: Place) -> DataError:
    return damaged(f"{path} does not hold what Online.save wrote")


def _read(path: Place) -> dict[str, Any]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); give a file that Online.save wrote.") from None
    except (ValueError, RecursionError):
        raise _unsound(path) from None
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise DataError(f"{path} is not a file that Online.save of this longhmm wrote; give one that is.")
    if not all(isinstance(document.get(name), int) for name in ("lag", "draws", "rows", "sequence")):
        raise _unsound(path)
    return document
