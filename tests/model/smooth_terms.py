"""Data and formulas of smooth terms, for several tests."""

import numpy as np
import pandas as pd

from longhmm.model.formula import Formula
from longhmm.model.terms import Terms

RNG = np.random.default_rng(2)
FRAME = pd.DataFrame({"hour": RNG.uniform(0, 24, 500), "temp": RNG.normal(12, 3, 500), "ID": np.arange(500) // 100})
CYCLIC, NATURAL = "~ s(hour, bs='cc', k=8, period=24)", "~ s(temp, k=6)"


def terms(text):
    learned = Formula(text).learned(FRAME)
    return Terms.among(learned.columns, learned.columns, learned.matrix(FRAME))
