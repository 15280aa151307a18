"""The command line. Nothing heavy is imported until a command runs, so that help and completion answer at once."""

import os
import sys
import threading
from typing import Annotated

import typer
from typer import Option

from longhmm.cli.decode import decode, report, view
from longhmm.cli.doctor import doctor
from longhmm.cli.fit import compare, fit, resume
from longhmm.cli.language import Once
from longhmm.cli.rates import rates
from longhmm.cli.reproduce import reproduce, simulate
from longhmm.cli.watch import watch

app = typer.Typer(
    name="longhmm",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
for command in (fit, resume, decode, report, rates, compare, watch, simulate, reproduce, view, doctor):
    app.command(cls=Once)(command)


def _version(wanted: bool) -> None:
    if wanted:
        from longhmm import __version__

        typer.echo(f"longhmm {__version__}")
        raise typer.Exit()


@app.callback()
def top(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Bayesian hidden Markov models for very long recordings.

    Begin with: longhmm fit recording.npy --states 3 --out run
    """


def main() -> None:
    try:
        app()
    except SystemExit as end:
        # At once, if work was left behind in other threads, such as a compilation that no one can interrupt.
        if any(thread.name.startswith("longhmm") and thread.is_alive() for thread in threading.enumerate()):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        raise
