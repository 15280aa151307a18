"""What to cite: the software with its version, the paper behind it, and the method of a run."""

import re
from importlib.resources import files
from typing import Any, NamedTuple

from longhmm.errors import ModelError
from longhmm.samplers import SAMPLERS
from longhmm.samplers.contract import Sampler
from longhmm.version import __version__

PAPER = "ma2017"
_STORED = (files("longhmm") / "references.bib").read_text(encoding="utf-8").strip()
REFERENCES = {  # BibTeX by key
    re.findall(r"{(\w+),", entry)[0]: entry.replace("version = {0}", f"version = {{{__version__}}}")
    for entry in _STORED.split("\n\n")
}


class Citation(NamedTuple):
    """Keys of `REFERENCES`, in the order in which they matter; printed as text and BibTeX."""

    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        lines = []
        for key in self.keys:
            author, title, year, *where = re.findall(r"^  (\w+) = {+(.+?)}+,$", REFERENCES[key], re.MULTILINE)
            *first, last = author[1].split(" and ")
            place = ", ".join(f"version {value}" if name == "version" else value for name, value in where)
            names = f"{', '.join(first)} and {last}" if first else last
            lines.append(f"{names} ({year[1]}). {title[1]}. {place}.".replace("--", "-"))
        return "\n".join(lines)

    @property
    def bibtex(self) -> str:
        return "\n\n".join(REFERENCES[key] for key in self.keys)

    def __str__(self) -> str:
        return f"{self.text}\n\n{self.bibtex}"


def citation(run: Any = None) -> Citation:
    """What to cite for a run: longhmm and its version, the paper, and what its sampler rests on.

    Args:
        run: a posterior or a sampler; None for the software and the paper alone.

    Example:
        >>> import longhmm as lh
        >>> print(lh.citation(lh.Gibbs()).text.splitlines()[-1][:40])
        Scott, S. L. (2002). Bayesian methods fo
    """
    keys: tuple[str, ...] = ()
    if hasattr(run, "settings"):  # a posterior names its sampler there
        known = {sampler.name: sampler.cites for sampler in SAMPLERS.classes().values()}
        keys = known.get(run.settings.get("sampler"), ())
    elif isinstance(run, Sampler):
        keys = run.cites
    elif run is not None:
        raise ModelError(f"run must be a posterior or a sampler, got {type(run).__name__}.")
    return Citation(tuple(dict.fromkeys(("longhmm", PAPER, *keys))))
