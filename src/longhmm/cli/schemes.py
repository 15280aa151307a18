"""Hidden states as the command line describes them: how many, by scheme, of how many channels, on which levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from typer import BadParameter, Option

from longhmm.cli.options import modelling, whole_numbers
from longhmm.errors import ModelError

States = Annotated[int | None, Option(min=1, max=1000, help="Number of hidden states; --scheme says it, too.")]
Numbers = Annotated[str | None, Option("--states", help="Numbers of states: a range 1..5 or a list 2,3,5.")]
SCHEME = "Kinetic scheme with rates per second, such as 'C1 <-> C2 <-> O'"
CHANNELS = "Identical channels, each with the scheme: 3, or 3:free with a level of its own for every number"
LEVELS = "Level of each state of the scheme (of one channel), such as 0,0,1"
SEVERAL = "repeat it to compare several."
Scheme = Annotated[str | None, modelling(help=f"{SCHEME}.")]
Channels = Annotated[str | None, modelling(help=f"{CHANNELS} open.")]
Levels = Annotated[str | None, modelling(help=f"{LEVELS}.")]
Schemes = Annotated[list[str] | None, modelling("--scheme", help=f"{SCHEME}; {SEVERAL}")]
NumbersOfChannels = Annotated[list[str] | None, modelling("--channels", help=f"{CHANNELS} open; or 1..4, 1,2:free.")]
SeveralLevels = Annotated[list[str] | None, modelling("--levels", help=f"{LEVELS}; {SEVERAL}")]
Bright = Annotated[bool, modelling("--brightness", help="Scale of each sequence of its own, for levels and noise.")]
FREE = ":free"


class Chain(NamedTuple):
    """Hidden states, how they follow one another, and which of them share a level."""

    n_states: int
    name: str
    transitions: Any = None
    levels: tuple[int, ...] | None = None  # of every state; None where each has its own
    equal: bool = False  # whether levels lie at equal distances
    plain: bool = False  # whether it is an ordinary chain

    @property
    def given(self) -> dict[str, Any]:
        """What a model is built with beside the number of states."""
        return {"transitions": self.transitions, "levels": self.levels, "equal": self.equal or None}


def asked(states: Any, scheme: Any) -> Any:
    """The states, where they or a scheme were given: known before a file is opened."""
    if not states and not scheme:
        raise BadParameter("must be given, such as --states 2, or --scheme 'C <-> O'.", param_hint="'--states'")
    return states


def chains(
    numbers: Sequence[int],
    schemes: Sequence[str] | None,
    channels: Sequence[str] | None,
    levels: Sequence[str] | None,
    formula: str | None,
    rate: float | None,
) -> list[Chain]:
    """Ordinary chains of every number of states, beside every scheme with every number of channels; each with all
    `levels` of its size, and with a level for every state where there are none of its size. Rows come `rate` times per
    second."""
    schemes, channels, levels = schemes or [], channels or [], levels or []
    asked(numbers, schemes)
    if channels and not schemes:
        raise ModelError("--channels needs the --scheme of one channel, such as 'C <-> O'.")
    shared = [_levels(text) for text in levels]
    found = [each for n in numbers for each in _of_states(n, formula, shared)]
    counts = [each for text in channels for each in _counts(text)]
    for scheme in schemes:
        found += _of_scheme(scheme, formula, rate, counts, shared)
    used = {len(each) for each in shared} & {_size(each) for each in found}
    if unused := [text for text, each in zip(levels, shared, strict=True) if len(each) not in used]:
        raise ModelError(f"--levels must have an entry for each state, as none of the models has for {unused[0]!r}.")
    return found


def chain(
    states: int | None,
    scheme: str | None,
    channels: str | None,
    levels: str | None,
    formula: str | None,
    rate: float | None,
) -> Chain:
    """The one that `fit` was asked for."""
    numbers = [] if scheme is not None or states is None else [states]
    named = [None if each is None else [each] for each in (scheme, channels, levels)]
    several = chains(numbers, named[0], named[1], named[2], formula, rate)
    if len(several) > 1:
        raise ModelError(
            f"--channels must be one number such as 3 here, as `longhmm compare` ranks several; got {channels!r}."
        )
    if states not in (None, several[0].n_states):
        raise ModelError(
            f"--states must be left out beside --scheme, or be that of {several[0].name}, "
            f"{several[0].n_states}; got {states}."
        )
    return several[0]


def _size(chain: Chain) -> int:
    """How many entries its levels have on the command line, which speaks of one channel."""
    return len(getattr(chain.transitions, "single", chain.transitions).states) if not chain.plain else chain.n_states


def _levels(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    found = tuple(int(part) for part in parts if part.isdecimal())
    if len(found) != len(parts) or set(found) != set(range(max(found) + 1)):
        raise ModelError(
            f"--levels must be one whole number for each state, from 0 without gaps, as 0,0,1; got {text!r}."
        )
    return found


def _counts(text: str) -> list[tuple[int, bool]]:
    """Numbers of channels, and whether levels are free."""
    numbers = text.removesuffix(FREE)
    return [(n, numbers != text) for n in whole_numbers("--channels", numbers)]


def _said(levels: tuple[int, ...]) -> str:
    return f"levels {' '.join(map(str, levels))}"


def _of_states(n: int, formula: str | None, shared: list[tuple[int, ...]]) -> Iterator[Chain]:
    name = f"{n} state{'s' if n > 1 else ''}"
    own = [each for each in shared if len(each) == n]
    if not own:
        yield Chain(n, name, formula, plain=True)
    for each in own:
        yield Chain(n, f"{name}, {_said(each)}", formula, each, plain=True)


def _of_scheme(
    scheme: str,
    formula: str | None,
    rate: float | None,
    counts: list[tuple[int, bool]],
    shared: list[tuple[int, ...]],
) -> Iterator[Chain]:
    from longhmm.model.transitions.channels import Channels as Several
    from longhmm.model.transitions.rates import scheme_or_formula

    one: Any = scheme_or_formula(scheme, formula, rate)
    own: list[tuple[int, ...] | None] = [each for each in shared if len(each) == one.n_states]
    for levels in own or [None]:
        name = scheme if levels is None else f"{scheme}, {_said(levels)}"
        if not counts:
            yield Chain(one.n_states, name, one, levels)
        if counts and levels is not None and max(levels) != 1:
            raise ModelError(
                f"--levels of a channel must be 0 where it is closed and 1 where it is open, got {levels}."
            )
        names = None if levels is None else [each for each, level in zip(one.states, levels, strict=True) if level]
        for n, free in counts:
            moves = Several(n, one, open_states=names)
            many = f"{n} channel{'s' if n > 1 else ''}, {name}{', free levels' if free else ''}"
            yield Chain(moves.n_states, many, moves, moves.levels, equal=not free)
