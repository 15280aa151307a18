"""What to cite: the software with its version, the paper behind it, and the method of a run."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from longhmm.errors import ModelError
from longhmm.samplers import REGISTERED
from longhmm.samplers.contract import Sampler
from longhmm.version import __version__

PAPER = "ma2017"


class Reference(NamedTuple):
    """One publication: how BibTeX calls its kind and where it appeared, authors joined by " and "."""

    kind: str
    author: str
    title: str
    year: int
    where: dict[str, str]

    @property
    def text(self) -> str:
        """One line for a list of references."""
        *first, last = self.author.split(" and ")
        authors = f"{', '.join(first)} and {last}" if first else last
        where = (f"version {value}" if name == "version" else value for name, value in self.where.items())
        return f"{authors} ({self.year}). {self.title}. {', '.join(where)}."

    def bibtex(self, key: str) -> str:
        """An entry for a BibTeX file."""
        fields = {"author": self.author, "title": f"{{{self.title}}}", "year": str(self.year), **self.where}
        return "\n".join(
            [f"@{self.kind}{{{key},", *(f"  {name} = {{{value}}}," for name, value in fields.items()), "}"]
        )


def _proceedings(author: str, title: str, year: int, booktitle: str) -> Reference:
    return Reference("inproceedings", author, title, year, {"booktitle": booktitle})


def _article(author: str, title: str, year: int, journal: str, volume: str, pages: str) -> Reference:
    return Reference("article", author, title, year, {"journal": journal, "volume": volume, "pages": pages})


REFERENCES = {
    "longhmm": Reference(
        "software",
        "{The longhmm developers}",
        "longhmm: Bayesian hidden Markov models for very long sequences",
        2026,
        {"version": __version__},
    ),
    PAPER: _proceedings(
        "Ma, Y.-A. and Foti, N. J. and Fox, E. B.",
        "Stochastic gradient MCMC methods for hidden Markov models",
        2017,
        "International Conference on Machine Learning",
    ),
    "leimkuhler2013": _article(
        "Leimkuhler, B. and Matthews, C.",
        "Rational construction of stochastic numerical methods for molecular sampling",
        2013,
        "Applied Mathematics Research eXpress",
        "2013",
        "34--56",
    ),
    "baker2019": _article(
        "Baker, J. and Fearnhead, P. and Fox, E. B. and Nemeth, C.",
        "Control variates for stochastic gradient MCMC",
        2019,
        "Statistics and Computing",
        "29",
        "599--615",
    ),
    "patterson2013": _proceedings(
        "Patterson, S. and Teh, Y. W.",
        "Stochastic gradient Riemannian Langevin dynamics on the probability simplex",
        2013,
        "Advances in Neural Information Processing Systems",
    ),
    "welling2011": _proceedings(
        "Welling, M. and Teh, Y. W.",
        "Bayesian learning via stochastic gradient Langevin dynamics",
        2011,
        "International Conference on Machine Learning",
    ),
    "chen2014": _proceedings(
        "Chen, T. and Fox, E. B. and Guestrin, C.",
        "Stochastic gradient Hamiltonian Monte Carlo",
        2014,
        "International Conference on Machine Learning",
    ),
    "hoffman2014": _article(
        "Hoffman, M. D. and Gelman, A.",
        "The No-U-Turn sampler: adaptively setting path lengths in Hamiltonian Monte Carlo",
        2014,
        "Journal of Machine Learning Research",
        "15",
        "1593--1623",
    ),
    "neal2011": Reference(
        "incollection",
        "Neal, R. M.",
        "MCMC using Hamiltonian dynamics",
        2011,
        {"booktitle": "Handbook of Markov Chain Monte Carlo"},
    ),
    "scott2002": _article(
        "Scott, S. L.",
        "Bayesian methods for hidden Markov models: recursive computing in the 21st century",
        2002,
        "Journal of the American Statistical Association",
        "97",
        "337--351",
    ),
    "foti2014": _proceedings(
        "Foti, N. J. and Xu, J. and Laird, D. and Fox, E. B.",
        "Stochastic variational inference for hidden Markov models",
        2014,
        "Advances in Neural Information Processing Systems",
    ),
    "dempster1977": _article(
        "Dempster, A. P. and Laird, N. M. and Rubin, D. B.",
        "Maximum likelihood from incomplete data via the EM algorithm",
        1977,
        "Journal of the Royal Statistical Society B",
        "39",
        "1--38",
    ),
}


class Citation(NamedTuple):
    """Keys of `REFERENCES`, in the order in which they matter; printed as text and BibTeX."""

    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        """One line for each reference."""
        return "\n".join(REFERENCES[key].text for key in self.keys).replace("{", "").replace("}", "").replace("--", "-")

    @property
    def bibtex(self) -> str:
        """One entry for each reference."""
        return "\n\n".join(REFERENCES[key].bibtex(key) for key in self.keys)

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
    keys = () if run is None else _method_of(run)
    return Citation(tuple(dict.fromkeys(("longhmm", PAPER, *keys))))


def _method_of(run: Any) -> tuple[str, ...]:
    """What the sampler itself, or the one that a posterior names in its settings, is to be cited by."""
    if hasattr(run, "settings"):
        samplers = (getattr(importlib.import_module(module), name) for name, module in REGISTERED.items())
        named = run.settings.get("sampler")
        return next((sampler.cites for sampler in samplers if sampler.name == named), ())
    if not isinstance(run, Sampler):
        raise ModelError(f"run must be a posterior or a sampler, got {type(run).__name__}.")
    return run.cites
