"""Formulas such as `~ temp + scale(slope)`: from covariates by name to the numbers that a model sees.

What a formula learns from the data it first meets (means of `scale`, knots of splines, categories of `C`) is kept with
it as plain values, so that other data are turned into the same numbers.
"""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import jax
import numpy as np

from longhmm.data.columns import NoColumns, names_in_table
from longhmm.data.sequences import Sequences, open_data
from longhmm.data.source import ArraySource, Source, one_line
from longhmm.errors import DataError, ModelError
from longhmm.model.smooth import transform

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.model.emissions import Emission

# Functions of one number, and what formulaic adds; all are free of memory of other rows but for what they learn.
_NUMPY = "abs arctan cos cosh exp floor log log10 log1p log2 sin sinh sqrt tan tanh"
PLAIN: dict[str, Any] = {name: getattr(np, name) for name in _NUMPY.split(" ")}
LEARNING = ("C", "I", "bs", "cc", "center", "cr", "cs", "poly", "s", "scale", "standardize")
CONSTANTS = {"pi": np.pi}
PIECES, PIECE_LENGTH = 64, 512  # of data in files, from which a formula learns
_NODES: tuple[type, ...] = (
    *(ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator),
    *(ast.unaryop, ast.List, ast.Tuple, ast.Compare, ast.cmpop),
)


class Formula:
    """The right-hand side of a formula. Two are equal if they say the same and lead to the same columns, whatever they
    have learned: compiled programs see columns only."""

    def __init__(self, text: str, state: Mapping[str, Any] | None = None) -> None:
        self.text = text
        self._parsed, self.variables = _parsed(text)
        self.columns: tuple[str, ...] = ()  # none before it has met data
        self._spec: Any = None
        if state is not None:
            self._spec, self.columns = _from_state(self._parsed, state), tuple(map(str, state["columns"]))

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and (self.text, self.columns) == (other.text, other.columns)

    def __hash__(self) -> int:
        return hash((self.text, self.columns))

    @property
    def state(self) -> dict[str, Any] | None:
        """What it has learned, as plain values; None before it has met data."""
        if self._spec is None:
            return None
        kinds = {
            name: [kind.value, [_plain(each) for each in kept.get("categories", [])]]
            for name, (kind, kept) in self._spec.encoder_state.items()
        }
        return {"columns": list(self.columns), "kinds": kinds, "learned": _plain(dict(self._spec.transform_state))}

    def learned(self, frame: pd.DataFrame) -> Formula:
        """The same formula once it has met data."""
        from formulaic import ModelSpec

        found = Formula(self.text)
        matrix = _evaluated(self, ModelSpec(self._parsed, na_action="ignore", output="numpy"), frame)
        found._spec, names = matrix.model_spec, list(matrix.model_spec.column_names)
        if names[:1] != ["Intercept"]:
            raise ModelError(f"The formula {self.text!r} must keep its intercept: leave out '0 +' and '- 1'.")
        found.columns = tuple(names[1:])
        return found

    def matrix(self, frame: pd.DataFrame) -> np.ndarray:
        """`(n, C)`, without the intercept; NaN where a variable is missing."""
        return np.asarray(_evaluated(self, self._spec, frame), np.float64)[:, 1:]

    def on(self, sequences: Sequences) -> Formula:
        """The same, unless it means nothing on these data."""
        return self


def _parsed(text: str) -> tuple[Any, tuple[str, ...]]:
    """What formulaic makes of a text, and the variables in it; only functions known here may be called."""
    from formulaic import Formula as Parsed

    wrong = f"The formula {text!r:.200} must be terms of covariates, such as '~ temp + I(slope**2)'"
    if not isinstance(text, str):
        raise ModelError(f"{wrong}, but it was no text.")
    try:
        parsed = Parsed(text)
        factors = [factor for term in parsed for factor in term.factors]
    except Exception as error:  # formulaic raises what it likes
        why = one_line(error).partition(". ")[0].rstrip(".")  # without its drawing of the place
        raise ModelError(f"{wrong}, but it cannot be read ({why}).") from None
    variables: dict[str, None] = {}
    for factor in factors:
        if factor.eval_method.value == "lookup":
            variables[factor.expr] = None
        elif factor.eval_method.value == "python":
            try:
                tree = ast.parse(factor.expr, mode="eval")
            except SyntaxError:
                raise ModelError(f"{wrong}, but {factor.expr!r} is none.") from None
            called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
            known = all(isinstance(each, ast.Name) and each.id in (*PLAIN, *LEARNING) for each in called)
            if not known or not all(isinstance(node, _NODES) for node in ast.walk(tree)):
                names = ", ".join(sorted((*PLAIN, *LEARNING)))
                raise ModelError(f"{wrong}, with functions among {names}, but it holds {factor.expr!r}.")
            names_in = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in called)
            variables |= {node.id: None for node in names_in if node.id not in CONSTANTS}
    if not variables:
        raise ModelError(f"{wrong}, but it names no covariate.")
    return parsed, tuple(variables)


def _evaluated(formula: Formula, spec: Any, frame: pd.DataFrame) -> Any:
    missing = [name for name in formula.variables if name not in frame]
    if missing:
        raise ModelError(
            f"The formula {formula.text!r} needs the covariate {missing[0]!r}, but the data have "
            f"{list(map(str, frame)) or 'none by name'}: give it as open_data(..., covariates=...)."
        )
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # categories that were never seen become NaN, which is refused with its row
        try:
            return spec.get_model_matrix(frame[[*formula.variables]], context={**PLAIN, **CONSTANTS, "s": transform()})
        except Exception as error:
            text = " ".join(one_line(error).split())
            raise DataError(f"The formula {formula.text!r} cannot be evaluated on these covariates ({text}).") from None


def _plain(value: Any) -> Any:
    """Numbers, texts, None and lists as they are; mappings, whose keys may be numbers, as lists of pairs."""
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(key), _plain(each)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _unplain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _unplain(each) for key, each in value["pairs"]}
    return [_unplain(each) for each in value] if isinstance(value, list) else value


def _from_state(parsed: Any, state: Mapping[str, Any]) -> Any:
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    kinds = {
        name: (Factor.Kind(kind), {"categories": categories} if categories else {})
        for name, (kind, categories) in state["kinds"].items()
    }
    how: Any = {"na_action": "ignore", "output": "numpy"}
    return ModelSpec(parsed, transform_state=_unplain(state["learned"]), encoder_state=kinds, **how)


def chosen_columns(
    columns: list[str] | None,
    transitions: str | None,
    group: str | None = None,
    emission: str | None = None,
    priors: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Columns of observations (else the streams of "step=gamma,angle=von-mises"), of the covariates in formulas, of
    transitions or in place of priors ("mean=~ temp"), and of what tells sequences apart, as `open_data` takes them; a
    number is a position."""
    texts = [each.partition("=")[2].strip() for each in priors or ()]
    formulas = [*([transitions] if transitions else []), *(each for each in texts if each.startswith("~"))]
    covariates = list(dict.fromkeys(name for each in formulas for name in Formula(each).variables)) or None
    listed = [part.strip() for each in columns or () for part in each.split(",") if part.strip()]
    chosen: Any = [int(each) if each.isdigit() else each for each in listed] or None
    if not columns and emission and "=" in emission and (covariates or group):
        chosen = [each.partition("=")[0] for each in emission.split(",")]
    return {"columns": chosen, "covariates": covariates, "group": group}


class FollowsFormula:
    """What transitions are that may follow a formula."""

    formula: Any = None  # which makes its covariates, if any does
    is_resolved: bool = True  # else `resolve(formula, columns, seen)` gives one that knows all it needs of the data
    axes: tuple[str, ...] = ()  # of the parameter; `state` and `to_state` come first where states may be renumbered
    terms: tuple[str, ...] = ()  # along the last of them


class Design(Source):
    """The columns of formulas, evaluated where rows are read; a column that two formulas share comes once."""

    def __init__(self, raw: Source, formulas: Sequence[Formula], origin: int) -> None:
        self.raw, self.formulas, self.parts, self.origin = raw, list(formulas), [raw], origin
        self.name, self.length, self.dtype = raw.name, raw.length, np.dtype(np.float64)
        self.names = columns_of(formulas)
        self.dim, self.made_by = len(self.names), mark_of(formulas)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return design_matrix(self.formulas, frame_of(self.raw, start, stop, self.origin))


def columns_of(formulas: Sequence[Formula]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(column for formula in formulas for column in formula.columns))


def mark_of(formulas: Sequence[Formula]) -> str:
    """By which data know the formulas that made their covariates."""
    return repr([(each.text, each.state) for each in formulas])


def frame_of(raw: Source, start: int, stop: int, origin: int) -> pd.DataFrame:
    import pandas as pd

    numbers = pd.RangeIndex(origin + start, origin + stop)
    return pd.DataFrame(raw.read(start, stop), numbers, list(raw.names or range(raw.dim)))


def design_matrix(formulas: Sequence[Formula], frame: pd.DataFrame) -> np.ndarray:
    """`(n, C)`, the columns of `columns_of`."""
    found = {name: column for each in formulas for name, column in zip(each.columns, each.matrix(frame).T, strict=True)}
    return np.stack([found[name] for name in columns_of(formulas)], axis=1)


def from_table(formulas: Sequence[Formula], given: Any, length: int, origin: int) -> np.ndarray:
    """The columns of formulas, made of a table or of a mapping from names to arrays; of rows from `origin` on."""
    import pandas as pd

    given = {} if given is None and not any(each.variables for each in formulas) else given
    if not isinstance(given, pd.DataFrame | Mapping):
        shape = "none" if given is None else f"an array of shape {np.shape(given)}"
        raise ModelError(f"covariates must be a table or a mapping from names to arrays, got {shape}.")
    frame = pd.DataFrame(given) if len(given) else pd.DataFrame(index=range(length))
    return design_matrix(formulas, frame.set_axis(pd.RangeIndex(origin, origin + len(frame))))


def transitions_into(model: Any, params: Mapping[str, Any], covariates: np.ndarray | None) -> np.ndarray:
    """`(n, K, K)`, the matrices of the transitions into rows with covariates `(n, C)`; of one row where None."""
    given = np.zeros((1, 0)) if covariates is None else covariates
    moves = model.transitions
    with jax.enable_x64(True):
        return np.asarray(_matrices(moves, np.asarray(params[moves.parameter]), given))


_matrices = jax.jit(lambda moves, parameter, covariates: moves.matrices(parameter, covariates))


def seen(raw: Source, origin: int = 0) -> pd.DataFrame:
    """What a formula learns from: all rows in memory, or stretches spread over a file, from the first row to the last,
    by their numbers."""
    import pandas as pd

    if raw.in_memory or raw.length <= PIECES * PIECE_LENGTH:
        return frame_of(raw, 0, raw.length, origin)
    starts = np.linspace(0, raw.length - PIECE_LENGTH, PIECES).astype(np.int64).tolist()
    return pd.concat([frame_of(raw, start, start + PIECE_LENGTH, origin) for start in starts])


class WithFormulas:
    """What a model is that may have formulas."""

    transitions: Any
    emission: Emission

    def _open(self, data: Any) -> Sequences:
        """Data as they lie there; columns of a table are found by the names of streams and variables."""
        streams = getattr(self.emission, "streams", {})
        if not hasattr(data, "columns") or not (self.formulas or streams):
            return open_data(data)
        variables = list(dict.fromkeys(name for each in self.formulas for name in each.variables))
        return open_data(data, **names_in_table(data, list(streams), variables, self.emission.dim))

    @property
    def formulas(self) -> list[Formula]:
        """Those that make the covariates of this model, if any do."""
        every = (self.transitions, *self.emission.regressions.values())
        return [each.formula for each in every if each.formula is not None]

    @property
    def n_covariates(self) -> int:
        """How many columns the model looks at, if it knows."""
        own = (each.linear for each in self.emission.regressions.values())
        return max(each.n_covariates for each in (self.transitions, *own))

    def opened(self, data: Any, after: int = 0) -> Sequences:
        """Data as this model sees them: open, with the columns of its formulas for covariates; `after` so many rows of
        the same recording, unless they know themselves where they come from."""
        sequences = self._open(data)
        return designed(sequences if sequences.origin or not after else sequences.starting_at(after), self.formulas)

    def meet(self, data: Any) -> tuple[Self, Sequences]:
        """This model with formulas that have met the data, and with the priors of their coefficients; and the data."""
        known = self.transitions.is_resolved and all(each.is_met for each in self.emission.regressions.values())
        model = self if known else _met(self, self._open(data))
        return model, model.opened(data)

    def check_covariates(self, sequences: Sequences) -> None:
        if (wanted := self.n_covariates) and sequences.n_covariates != wanted:
            raise ModelError(
                f"{sequences.name} has {sequences.n_covariates} covariate(s), but the model depends on {wanted}: "
                "give them as open_data(y, covariates=...)."
            )


# Of data that are kept open, the model that last met them, and what became of it.
_latest: WeakKeyDictionary[Sequences, tuple[Any, Any]] = WeakKeyDictionary()


def _met(model: Any, sequences: Sequences) -> Any:
    """`_settled`, once where the same model meets the same data again."""
    if sequences not in _latest or _latest[sequences][0] is not model:
        _latest[sequences] = model, _settled(model, sequences)
    return _latest[sequences][1]


def _settled(model: Any, sequences: Sequences) -> Any:
    """A model whose formulas have met the data, and with the priors of their coefficients."""
    found, moves = copy.copy(model), model.transitions
    if not model.formulas:
        model.check_covariates(sequences)
        raw = sequences.parts["covariates"]
        found.transitions = moves.resolve(None, raw.names or moves.columns, seen(raw).to_numpy(np.float64))
        return found
    if moves.n_covariates and moves.formula is None:
        raise ModelError(f"transitions must be a formula, too, where the emission has one, got {moves!r}.")
    frame = seen(raw_of(sequences, model.formulas), sequences.origin)
    frame.attrs["ends"] = tuple((sequences.origin + sequences.offsets).tolist())
    learned = {each.text: each if each.columns else each.learned(frame) for each in model.formulas}
    columns, table = columns_of(list(learned.values())), design_matrix(list(learned.values()), frame)
    if moves.formula is not None:
        found.transitions = moves.resolve(learned[moves.formula.text], columns, table)
        found.emission = found.emission.beside(found.transitions)
    if model.emission.regressions:
        found.emission = found.emission.met(learned, columns, table)
    return found


def own_axes(moves: Any) -> dict[str, dict[str, int]]:
    """Names and sizes of the axes of the parameter of transitions that are no matrix."""
    names = moves.axes or [f"{moves.parameter}_{axis}" for axis in range(len(moves.shape))]
    return {moves.parameter: dict(zip(names, moves.shape, strict=True))} if not moves.dirichlet else {}


def term_labels(model: Any) -> dict[str, list[str]]:
    """Names along the axes of parameters that are not numbered from 0."""
    own = {model.transitions.axes[-1]: list(model.transitions.terms)} if model.transitions.terms else {}
    return {**own, **(model.emission.labels if model.emission.regressions else {})}


def on_columns(model: Any) -> Any:
    """A model that is to be given the columns of its formulas instead of what these are made of."""
    found, moves = copy.copy(model), copy.copy(model.transitions)
    moves.formula = None
    found.transitions = moves
    found.emission = model.emission.on_columns() if model.emission.regressions else model.emission
    return found if model.formulas else model


def designed(sequences: Sequences, formulas: Sequence[Formula]) -> Sequences:
    """The same data with the columns of formulas for covariates, in memory where they are."""
    given = sequences.parts.get("covariates")
    if not formulas or (given is not None and given.made_by == mark_of(formulas)):
        return sequences
    design = Design(raw_of(sequences, formulas), [each.on(sequences) for each in formulas], sequences.origin)
    whole: Any = design
    if sequences.in_memory:
        whole = ArraySource(design.read(0, design.length), design.name, like=design)
        whole.raw = design.raw
    parts = {**sequences.parts, "covariates": whole}
    found = Sequences(parts.pop("values"), sequences.offsets, **parts)
    found.origin, found.context = sequences.origin, sequences.context
    return found.run_by(sequences.executor)


def raw_of(sequences: Sequences, formulas: Sequence[Formula]) -> Source:
    """The covariates as they lie in the data, whatever was made of them before."""
    if not any(each.variables for each in formulas):
        return NoColumns(sequences.name, sequences.length)
    given: Any = sequences.parts.get("covariates")
    raw = given if given is None or not given.made_by else getattr(given, "raw", None)
    names = raw.names if raw is not None else None
    if raw is None or names is None:
        variables = list(dict.fromkeys(name for each in formulas for name in each.variables))
        raise ModelError(
            f"{formulas[0].text!r} needs covariates by name, {variables}, but {sequences.name} has "
            f"{'none' if given is None else 'covariates without names'}: give them as open_data(..., covariates=...), "
            "columns of the data by name, a table, or a mapping from names to arrays."
        )
    return raw
