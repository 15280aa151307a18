"""The verdict in words for people who do not read diagnostics."""

from __future__ import annotations

from typing import NamedTuple

from longhmm.posterior.diagnostics.verdict import Verdict


class Advice(NamedTuple):
    """How a verdict is shown: "good", "care" or "bad", its sign, its title, and what to do."""

    tone: str
    sign: str
    title: str
    meaning: str


ADVICE = {
    "trust": Advice(
        "good",
        "✓",
        "The result can be trusted",
        "The chains agree, their draws satisfy the exact gradients, and the model describes the data. The numbers and "
        "intervals below can be used as they are.",
    ),
    "run longer": Advice(
        "care",
        "…",
        "Run it longer",
        "There are too few independent draws to be sure of the intervals. Ask for more draws, or let the run go on; "
        "what is shown here is provisional.",
    ),
    "biased": Advice(
        "bad",
        "!",
        "Some numbers are off",
        "Exact gradients at the draws show that the named quantity is shifted or its interval has the wrong width. "
        "Levels and events far from that quantity may still be right. Use more draws, or an exact sampler.",
    ),
    "the model does not fit": Advice(
        "bad",
        "!",
        "The model does not describe these data",
        "The levels and events can still be a fair picture, but the intervals do not have the width they should have. "
        "Look at the predictive check and at the dwell times below, and try what the sentence above suggests.",
    ),
    "another mode is as good": Advice(
        "bad",
        "!",
        "There is another explanation that is as good",
        "The data can be explained in more than one way, and the draws show only what their chains found. Compare the "
        "alternatives; fewer states often remove the ambiguity.",
    ),
    "chains agree, rest unchecked": Advice(
        "care",
        "?",
        "The chains agree; the rest was not checked",
        "Whether the draws are biased and whether the model fits can be said only with the recording. "
        "Run posterior.diagnose(data) and save the run again.",
    ),
}

DETAILS = {
    "r_hat": ("agreement of the chains (R-hat)", "at most 1.01"),
    "ess": ("effective number of draws", "at least 400"),
    "shift": ("shift of a mean, in posterior sd", "within ±0.1"),
    "sd_ratio": ("width of an interval, relative to the right one", "0.9 to 1.1"),
    "sandwich": ("scatter of the data, relative to what the posterior allows", "at most 1.5"),
    "autocorrelation": ("correlation of neighbouring residuals", "within ±0.1"),
    "residual_distance": ("error of the probabilities of observations", "at most 0.02, or not beyond chance"),
    "residual_tails": ("share of observations beyond four standard deviations", "at most 0.001"),
    "dwell": ("error of the chance to leave a state, by time since entry", "at most 0.1, or not beyond chance"),
}


def advice(verdict: Verdict) -> Advice:
    """What to say about a verdict."""
    return ADVICE[verdict.kind]
