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

# What a user may write instead of a class; each takes `dim` but the two that describe one feature only.
BY_NAME: dict[str, type[Emission]] = {
    "gaussian": Gaussian,
    "student-t": StudentT,
    "lognormal": LogNormal,
    "gamma": Gamma,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "von-mises": VonMises,
    "gaussian-mixture": GaussianMixture,
}
ONE_FEATURE = ("categorical", "gaussian-mixture")

__all__ = [
    "BY_NAME",
    "ONE_FEATURE",
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
