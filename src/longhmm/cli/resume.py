"""`longhmm resume`: go on with a run that was stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from longhmm.cli import options
from longhmm.cli.output import Output, guarded


@guarded
def resume(
    run: options.Run,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Draws of each chain in all, if more are wanted than at first.")
    ] = None,
    time_limit: options.TimeLimit = None,
    as_json: options.Json = False,
) -> None:
    """Go on with a run that was stopped, to the same draws bit for bit as if it had not been.

    A run without a checkpoint starts over; a finished run is left as it is.
    """
    from longhmm.cli.running import checked, describe, draw
    from longhmm.posterior.run_directory import RunDirectory
    from longhmm.run.lock import locked

    said = Output(as_json)
    found = RunDirectory.open(run)
    wanted = draws or checked(found).request["sample"]["draws"]
    if found.has_posterior:
        posterior = found.posterior()
        if posterior.n_draws >= wanted and posterior.verdict is not None:
            said.say(f"{run} is finished: {posterior.n_draws:,} draws of each chain.")
            said.result({**describe(found, posterior, said), "stopped": None})
            return
    with locked(found.path):
        code = draw(found, said, time_limit=time_limit, draws=wanted)
    if code:
        raise typer.Exit(code)
