"""The named emission families, in one place."""

from longhmm.model.angles import VonMises
from longhmm.model.categories import Bernoulli, Categorical
from longhmm.model.counts import NegativeBinomial, Poisson
from longhmm.model.emissions import Emission
from longhmm.model.gaussian import Gaussian
from longhmm.model.heavy_tailed import StudentT
from longhmm.model.mixture import GaussianMixture
from longhmm.model.ordered import OrderedNormal
from longhmm.model.positive import Gamma, LogNormal
from longhmm.model.tied import Tied

__all__ = [
    "Bernoulli",
    "Categorical",
    "Emission",
    "Gamma",
    "Gaussian",
    "GaussianMixture",
    "LogNormal",
    "NegativeBinomial",
    "OrderedNormal",
    "Poisson",
    "StudentT",
    "Tied",
    "VonMises",
]
