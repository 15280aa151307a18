"""What `longhmm reproduce` does: experiments one after the other, their reports, and which claims hold."""

import shutil
from pathlib import Path
from typing import Any

from longhmm_reproduction import catalogue, claims
from longhmm_reproduction.document import short
from longhmm_reproduction.report import COLUMNS, write_report
from longhmm_reproduction.summary import write_summary


def reproduce(said: Any, name: str, scale: str, folder: Path, seed: int) -> None:
    """Run one experiment, or all, into a folder; `said` takes what is told on the way, and the document in the end."""
    names = catalogue.NAMES if name == "all" else (name,)
    folder.mkdir(parents=True, exist_ok=True)  # a folder that cannot be written to is known before hours of computing
    outcomes = []
    for each in names:
        # At full size a run takes hours: what is finished is kept, and a run that was stopped goes on.
        keep = folder / "parts" if scale == "paper" else None
        found = catalogue.run(each, scale, seed, keep=keep)
        outcomes.append(found)
        write_report(found, folder)
        if keep is not None:
            shutil.rmtree(keep, ignore_errors=True)  # another run is to begin from the beginning
        results = found["results"].items()
        rows = [[method, *(metrics.get(key, float("nan")) for key in COLUMNS)] for method, metrics in results]
        said.table(f"{each}, {scale}", ["method", *COLUMNS.values()], rows)
        for claim in claims.judge(found):
            said.say(f"{claim.verdict}: {claim.sentence} ({claim.evidence})")
    write_summary(outcomes, folder)
    said.say(f"Figures, tables and curves: {folder}")
    said.result([short(found) for found in outcomes] if name == "all" else short(outcomes[0]))
