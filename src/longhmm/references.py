"""What to cite: the software with its version, the paper behind it, and the method of a run."""

import importlib
import re
from typing import Any, NamedTuple

from longhmm.errors import ModelError
from longhmm.samplers import REGISTERED
from longhmm.samplers.contract import Sampler
from longhmm.version import __version__

PAPER = "ma2017"
REFERENCES = {  # Authors (year). Title. Where.
    "longhmm": "{The longhmm developers} (2026). longhmm: Bayesian hidden Markov models for very long sequences. "
    f"version {__version__}.",
    PAPER: "Ma, Y.-A. and Foti, N. J. and Fox, E. B. (2017). Stochastic gradient MCMC methods for hidden Markov "
    "models. International Conference on Machine Learning.",
    "leimkuhler2013": "Leimkuhler, B. and Matthews, C. (2013). Rational construction of stochastic numerical methods "
    "for molecular sampling. Applied Mathematics Research eXpress, 2013, 34--56.",
    "baker2019": "Baker, J. and Fearnhead, P. and Fox, E. B. and Nemeth, C. (2019). Control variates for stochastic "
    "gradient MCMC. Statistics and Computing, 29, 599--615.",
    "patterson2013": "Patterson, S. and Teh, Y. W. (2013). Stochastic gradient Riemannian Langevin dynamics on the "
    "probability simplex. Advances in Neural Information Processing Systems.",
    "welling2011": "Welling, M. and Teh, Y. W. (2011). Bayesian learning via stochastic gradient Langevin dynamics. "
    "International Conference on Machine Learning.",
    "chen2014": "Chen, T. and Fox, E. B. and Guestrin, C. (2014). Stochastic gradient Hamiltonian Monte Carlo. "
    "International Conference on Machine Learning.",
    "hoffman2014": "Hoffman, M. D. and Gelman, A. (2014). The No-U-Turn sampler: adaptively setting path lengths in "
    "Hamiltonian Monte Carlo. Journal of Machine Learning Research, 15, 1593--1623.",
    "neal2011": "Neal, R. M. (2011). MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo.",
    "scott2002": "Scott, S. L. (2002). Bayesian methods for hidden Markov models: recursive computing in the 21st "
    "century. Journal of the American Statistical Association, 97, 337--351.",
    "foti2014": "Foti, N. J. and Xu, J. and Laird, D. and Fox, E. B. (2014). Stochastic variational inference for "
    "hidden Markov models. Advances in Neural Information Processing Systems.",
    "dempster1977": "Dempster, A. P. and Laird, N. M. and Rubin, D. B. (1977). Maximum likelihood from incomplete data "
    "via the EM algorithm. Journal of the Royal Statistical Society B, 39, 1--38.",
}
# How BibTeX calls what appeared somewhere, and the parts of that; the first that fits.
KINDS = {
    "software": r"version (?P<version>.+)",
    "article": r"(?P<journal>.+), (?P<volume>\d+), (?P<pages>[\d-]+)",
    "incollection": r"(?P<booktitle>Handbook .+)",
    "inproceedings": r"(?P<booktitle>.+)",
}


class Citation(NamedTuple):
    """Keys of `REFERENCES`, in the order in which they matter; printed as text and BibTeX."""

    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        lines = []
        for key in self.keys:
            authors, rest = REFERENCES[key].split(" (", 1)
            *first, last = authors.split(" and ")
            lines.append(f"{', '.join(first)} and {last} ({rest}" if first else f"{last} ({rest}")
        return "\n".join(lines).replace("{", "").replace("}", "").replace("--", "-")

    @property
    def bibtex(self) -> str:
        return "\n\n".join(_bibtex(key) for key in self.keys)

    def __str__(self) -> str:
        return f"{self.text}\n\n{self.bibtex}"


def _bibtex(key: str) -> str:
    author, year, title, where = re.findall(r"(.+) \((\d+)\)\. (.+?)\. (.+)\.", REFERENCES[key])[0]
    kind, found = next((kind, found) for kind, form in KINDS.items() if (found := re.fullmatch(form, where)))
    fields = {"author": author, "title": f"{{{title}}}", "year": year, **found.groupdict()}
    return "\n".join([f"@{kind}{{{key},", *(f"  {name} = {{{value}}}," for name, value in fields.items()), "}"])


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
        samplers = (getattr(importlib.import_module(module), name) for name, module in REGISTERED.items())
        named = run.settings.get("sampler")
        keys = next((sampler.cites for sampler in samplers if sampler.name == named), ())
    elif isinstance(run, Sampler):
        keys = run.cites
    elif run is not None:
        raise ModelError(f"run must be a posterior or a sampler, got {type(run).__name__}.")
    return Citation(tuple(dict.fromkeys(("longhmm", PAPER, *keys))))
