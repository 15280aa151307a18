"""Options that several commands share, and what they mean: recordings, what is done to them first, a model."""

from __future__ import annotations

import ast
import contextlib
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from longhmm import samplers
from longhmm.cli.language import ask_about_columns
from longhmm.errors import DataError, ModelError
from longhmm.model import registry

if TYPE_CHECKING:
    from longhmm.data.preprocess import Preprocessing
    from longhmm.data.sequences import Sequences
    from longhmm.model.hmm import HMM

reading, modelling, sampling = (
    partial(Option, rich_help_panel=panel) for panel in ("Reading the recording", "The model", "Sampling")
)


def one_of(names: Callable[[], list[str]]) -> dict[str, Any]:
    """The settings of an option that takes one of some names: how it looks in the help, what it refuses."""

    def known(text: str) -> str:
        if any(each.rpartition("=")[2] not in names() for each in (text.split(",") if "=" in text else [text])):
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(names())}.")
        return text

    return {"parser": known, "metavar": f"[{'|'.join(names())}]"}


Recordings = Annotated[
    list[str],
    Argument(
        help="Files: npy, zarr, csv, abf and more (`longhmm doctor` lists them). Several are several sequences. "
        "'example:nanopore' is the one that comes with longhmm.",
        show_default=False,
        metavar="RECORDING...",
    ),
]
Run = Annotated[Path, Argument(help="The directory that `longhmm fit --out` made.", show_default=False)]
Moved = Annotated[list[str] | None, Argument(help="The recording, if it was moved since.", metavar="RECORDING...")]
Json = Annotated[bool, Option("--json", help="Print one JSON document on standard output, all else on standard error.")]
Seed = Annotated[int, Option(help="Equal seeds give equal results.", min=0)]
Columns = Annotated[
    list[str] | None,
    reading("--column", "--columns", "--channel", help="By name or number from 0; several with commas, or repeated."),
]
Dataset = Annotated[str | None, reading(help="Array to use inside a file that holds several.")]
Group = Annotated[str | None, reading(help="Column that tells sequences apart, such as ID.")]
Time = Annotated[str | None, reading(help="Column of times, in seconds or dates: gives the samples per second.")]
Rate = Annotated[float | None, reading(help="Samples per second, where the file does not say (or is wrong).")]
Decimate = Annotated[int, reading(min=1, help="Keep every n-th; others are left out rather than averaged over levels.")]
Fret = Annotated[str | None, reading(help="Efficiency of donor and acceptor: gamma=1,leakage=0,direct=0,bleached=.25")]
Log = Annotated[bool, reading("--log", help="Take logarithms; values must be positive.")]
Detrend = Annotated[bool, reading("--detrend", help="Subtract a straight line, laid through medians.")]
Normalise = Annotated[bool, reading("--normalise", help="Subtract the mean and divide by the standard deviation.")]
Emission = Annotated[
    str | None,
    modelling(**one_of(registry.EMISSIONS.names), help="Noise around each state; else guessed; or step=gamma,angle=.."),
]
Priors = Annotated[
    list[str] | None,
    modelling(
        "--prior",
        help="Prior, fixed value or formula of a parameter, such as 'loc=Normal(50, 20)', 'df=4' or 'mean=~ temp'; "
        "lists give one number per state. Repeat it for several.",
    ),
]
Stay = Annotated[float | None, modelling(help="Prior weight of staying in a state, in observations (moving has 1).")]
Chains = Annotated[int, sampling(min=1, help="Independent chains.")]
Draws = Annotated[int, sampling(min=1, help="Draws kept of each chain.")]
Sampler = Annotated[
    str, sampling(**one_of(samplers.names), help="auto chooses by cost; the others need no tuning by hand, either.")
]
TimeLimit = Annotated[float | None, sampling(help="Seconds after which drawing stops; `resume` goes on from there.")]


def located(recordings: list[str]) -> list[str]:
    """Absolute paths, so that a run finds its data from anywhere; addresses and examples as they are."""
    from longhmm.data.formats import EXAMPLE

    kept = {each for each in recordings if "://" in each or each.startswith(EXAMPLE)}
    return [each if each in kept else str(Path(each).expanduser().absolute()) for each in recordings]


def in_a_folder(file: Path) -> Path:
    """A file to be written, if its folder is there: better known before hours of computing than after."""
    if not file.absolute().parent.is_dir():
        raise DataError(f"the folder of {file} does not exist; make it first, or choose another place.")
    return file


def opened(
    recordings: list[str], dataset: str | None, names: dict[str, Any], emission: str | None, steps: dict[str, Any]
) -> tuple[Sequences, Preprocessing, Sequences, registry.Guess]:
    """The recording in its files, preprocessing measured on it, what the model sees, and a family that suits that."""
    from longhmm.data.fret import fret_options
    from longhmm.data.preprocess import Preprocessing
    from longhmm.data.sequences import open_data

    where: Any = located(recordings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*and rows are times")  # `ask_about_columns` refuses such data
        recording = open_data(where[0] if len(where) == 1 else where, dataset=dataset, **names)
    if names["columns"] is None and "=" not in (emission or "") and not steps["fret"]:
        ask_about_columns(recording)
    if recording.length <= (every := steps["decimate"]):
        why = f" for --decimate {every}" if every > 1 else ""
        raise DataError(f"{recording.name} must have at least {every + 1} samples{why}, has {recording.length}.")
    measured = Preprocessing(**steps | {"fret": fret_options(steps["fret"])}).measured(recording)
    data = measured.apply(recording)
    guess = registry.guess_emission(data) if emission is None else registry.Guess(emission, "as asked for")
    return recording, measured, data, guess


def build_model(
    name: str, n_states: int, data: Sequences, *, priors: list[str], stay: Any, held_out: float = 0, **given: Any
) -> HMM:
    """The model that was asked for, unless it cannot have produced the data or has more states than observations."""
    from longhmm.backends.read import partly_observed
    from longhmm.model.emissions.equally_spaced import emission_on
    from longhmm.model.hmm import HMM
    from longhmm.model.transitions.dirichlet import Sticky
    from longhmm.model.transitions.durations import by_dwell_times

    transitions = by_dwell_times(given.pop("durations", None), given.pop("transitions", None), stay)
    given = {each: value for each, value in given.items() if value is not None}
    emission = emission_on(name, data, held_out, **dict(parse_prior(text) for text in priors), **given)
    if stay is not None and not stay > 0:
        raise ModelError(f"--stay must be a positive number, got {stay:g}.")
    model = HMM(n_states, emission, transitions=transitions, transition_prior=Sticky(stay) if stay else 1.0)
    if n_states > data.length:
        raise ModelError(f"--states must not exceed the {data.length:,} samples of {data.name}, got {n_states}.")
    partly_observed(model.resolve(data), data)  # what lies in files is checked whenever it is read
    if held_out:
        data.split(held_out)
    return model


def whole_numbers(option: str, text: str) -> list[int]:
    """What an option says that takes a range such as 1..5 or a list such as 2,3,5."""
    with contextlib.suppress(ValueError):
        first, last = map(int, text.split("..")) if ".." in text else (1, 0)
        found = list(range(first, last + 1)) or [int(part) for part in text.split(",")]
        if min(found) >= 1 and max(found) <= 1000 and len(set(found)) == len(found):
            return found
    raise ModelError(f"{option} must be a range such as 1..5 or a list such as 2,3,5, got {text!r}.")


def parse_prior(text: str) -> tuple[str, Any]:
    """`name=Normal(0, 1)`, `name=4` or `name=~ temp` as the name and what is given; only known names are called."""
    import jax

    from longhmm.model.serialise import PRIORS, prior_from_config

    name, right = (each.strip() for each in text.partition("=")[::2])
    if right.startswith("~") and name.isidentifier():
        return name, right
    wrong = ModelError(
        f"--prior must look like 'loc=Normal(0, 10)' or 'df=4', with one of {', '.join(sorted(PRIORS))}; got {text!r}."
    )
    try:
        tree = ast.parse(right, mode="eval").body
        if not isinstance(tree, ast.Call) and name.isidentifier():
            return name, _numbers(tree)
        kind = getattr(getattr(tree, "func", None), "id", "")
        if not isinstance(tree, ast.Call) or not name.isidentifier() or kind not in PRIORS:
            raise wrong
        names = PRIORS[kind]
        args = dict(zip(names, (_numbers(each) for each in tree.args), strict=False))
        args |= {str(each.arg): _numbers(each.value) for each in tree.keywords}
        if len(tree.args) > len(names) or set(args) != set(names):
            raise ModelError(f"--prior {name}={kind}(...) needs the numbers {', '.join(names)}; got {text!r}.")
        with jax.enable_x64(True):
            return name, prior_from_config({"distribution": kind, "args": args})
    except ModelError:
        raise
    except (SyntaxError, ValueError, RecursionError):
        raise wrong from None


def _numbers(node: ast.expr) -> Any:
    """A number, or lists of numbers: the only values that a prior may have."""
    import numpy as np

    value = ast.literal_eval(node)
    if np.asarray(value).dtype.kind not in "iuf":
        raise ValueError("not a number")
    return value
