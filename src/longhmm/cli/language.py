"""What the command line says in its own words: options that are given once, and sentences that name them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from longhmm.errors import DataError

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences

LOOKED_AT = 1000  # rows of a file, from which columns that only rise are told


class Once(TyperCommand):
    """A command that refuses an option which is given twice, of which the last would silently count, and whose help
    shows flags without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        for option in found:
            if getattr(option, "is_flag", False):
                option.metavar = ""
        return found

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        order = self.make_parser(ctx).parse_args(args=list(args))[2]
        for option in order:
            if option.param_type_name == "option" and not option.multiple and order.count(option) > 1:
                said = f"it takes one value, got {order.count(option)}."
                raise typer.BadParameter(said, ctx, param_hint=f"'{option.opts[0]}'")
        return super().parse_args(ctx, args)


def in_options(sentence: str) -> str:
    """A sentence about arguments in Python, such as columns=[...], in the words of the command line."""
    sentence = sentence.replace("raise n_states", "raise --states")
    alone = re.sub(r"\b(column|dataset|group|time)s?=(\[\.\.\.\])?(?=[\s,;.]|$)", r"--\1", sentence)
    return re.sub(r"\b(column|dataset|group|time)s?=(?=\S)", r"--\1 ", alone)


def ask_about_columns(recording: Sequences) -> None:
    """Refuse to take all columns of a file where nobody chose and some are, perhaps, no observations."""
    import numpy as np

    from longhmm.data.columns import NOT_OBSERVED

    source = recording.source.parts[0] if recording.source.parts else recording.source
    if source.dim > max(source.length, 32):
        raise DataError(
            f"{source.name} has {source.length:,} rows and {source.dim:,} columns, and rows are times: transpose it, "
            "or choose with --columns."
        )
    if source.names is None or source.dim == 1:
        return
    listed = ", ".join(source.names)
    if source.rate is not None:  # an instrument's channels: the current and the voltage that was applied, say
        raise DataError(f"{source.name} has the channels {listed}; choose with --channel, several with commas.")
    rows = source.read(0, min(source.length, LOOKED_AT)).astype(float)
    rises = np.all(rows[1:] > rows[:-1], axis=0) if len(rows) >= 10 else np.zeros(source.dim, bool)
    odd = [each for each, up in zip(source.names, rises, strict=True) if up or each.lower() in NOT_OBSERVED]
    if odd:
        raise DataError(
            f"{source.name} has the columns {listed}, of which {', '.join(odd)} may be no observation; choose with "
            "--columns what is, with --group what tells sequences apart, with --time what is a time."
        )


def rate_of_rows(
    recording: Sequences, files: list[str], rate: float | None, time: str | None, group: str | None
) -> float | None:
    """Samples per second: as asked for, else by the column of times, else as the file says."""
    from longhmm.data.columns import rate_of

    if rate is not None and not rate > 0:
        raise DataError(f"--rate must be a positive number of samples per second, got {rate:g}.")
    return rate or (recording.rate if time is None else rate_of(time, files, group))


def how_often(rate: float | None) -> str:
    """Slow ones by the time between samples."""
    if rate is None or rate >= 0.1:
        return "at an unknown rate" if rate is None else f"at {rate:g} Hz"
    return f"every {1 / rate:g} s"
