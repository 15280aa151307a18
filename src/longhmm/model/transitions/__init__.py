"""How states follow one another: one file per kind of transitions."""

from longhmm.model.transitions.base import TransitionModel as TransitionModel
from longhmm.model.transitions.dirichlet import Sticky as Sticky
from longhmm.model.transitions.dirichlet import Transitions as Transitions
