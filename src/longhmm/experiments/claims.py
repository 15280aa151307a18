"""The paper's claims, each held against what an experiment found: confirmed, not decided, or refuted, with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from longhmm.experiments.scoring import mean_and_error

CONFIRMED, OPEN, REFUTED = "confirmed", "not decided", "refuted"
# Standard errors by which a mean of n repetitions must differ from zero: 97.5 % quantiles of Student's t.
DECIDED = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}
MANY = 2.0
CORRELATED = 0.05
BETTER = {"predictive_log_prob": 1.0, "transition_error": -1.0}
WORDS = {"predictive_log_prob": "predictive log probability", "transition_error": "error of the transition matrix"}


class Claim(NamedTuple):
    """One sentence, what became of it, and the numbers."""

    sentence: str
    verdict: str
    evidence: str


def judge(found: Mapping[str, Any]) -> list[Claim]:
    """Every claim that the outcome of an experiment speaks to."""
    name = found["experiment"]
    if name == "lognormal":
        return list(_lognormal(found))
    if name == "ion":
        return list(_ion(found))
    if name == "variational":
        return list(_variational(found))
    return list(_simulated(found))


def compare(found: Mapping[str, Any], one: str, other: str, metric: str) -> tuple[float, float, str]:
    """By how much `one` is better than `other`, repetition by repetition: mean, standard error, verdict."""
    first, second = (np.asarray(found["repetitions"][each][metric]) for each in (one, other))
    mean, error = mean_and_error(BETTER[metric] * (first - second))
    return mean, error, _decide(mean, error, len(first))


def _decide(mean: float, error: float, repetitions: int) -> str:
    if repetitions < 2 or abs(mean) <= DECIDED.get(repetitions, MANY) * error:
        return OPEN
    return CONFIRMED if mean > 0 else REFUTED


def _better(found: Mapping[str, Any], one: str, other: str, metric: str) -> Claim:
    mean, error, verdict = compare(found, one, other, metric)
    evidence = f"better by {mean:.2g} ± {error:.1g}"
    return Claim(f"{one} beats {other} in {WORDS[metric]}", verdict, evidence)


def _simulated(found: Mapping[str, Any]) -> Iterator[Claim]:
    for metric in BETTER:
        yield _better(found, "buffered", "unbuffered", metric)
        yield _better(found, "unbuffered", "iid", metric)
    if "unbuffered-stationary" in found["results"]:
        mean, error, verdict = compare(found, "unbuffered-stationary", "unbuffered", "transition_error")
        sentence = "without buffers the transition matrix is biased under uniform starts (stationary ones repair it)"
        yield Claim(sentence, verdict, f"stationary starts are better by {mean:.2g} ± {error:.1g}")
    if seen := found["settings"].get("certificate"):
        uniform, stationary = (np.array([each[start] for each in seen]) for start in ("uniform", "stationary"))
        mean, error = mean_and_error(uniform - stationary)
        evidence = (
            f"{uniform.mean():.2g} against {stationary.mean():.2g} posterior standard deviations of "
            f"{found['settings']['certified']:,} observations, a difference of {mean:.2g} ± {error:.1g}"
        )
        sentence = "the certificate predicts a larger bias for uniform than for stationary starts"
        yield Claim(sentence, _decide(mean, error, len(seen)), evidence)
    yield _better(found, "default", "buffered", "transition_error")


def _lognormal(found: Mapping[str, Any]) -> Iterator[Claim]:
    results = found["results"]
    states = found["settings"]["states"]
    for which, expected in (("lognormal", 2), ("gaussian", 4)):
        if expected not in states:
            continue
        scores = {each: results[f"{which}-k{each}"]["predictive_log_prob"] for each in states}
        best = max(scores, key=lambda each: scores[each])
        listed = ", ".join(f"{each}: {value:.4f}" for each, value in scores.items())
        verdict = CONFIRMED if best == expected else REFUTED
        # Where more states gain less than the noise of the comparison, the smaller number is selected as well.
        if best != expected and which == "lognormal":
            gain = np.subtract(
                *(found["repetitions"][f"{which}-k{each}"]["predictive_log_prob"] for each in (best, expected))
            )
            mean, error = mean_and_error(gain)
            verdict = OPEN if _decide(mean, error, len(gain)) == OPEN else REFUTED
            listed += f" (K = {best} gains {mean:.1g} ± {error:.1g} over K = {expected})"
        if best == max(states):
            listed += ", the most that were tried being best"
        yield Claim(f"the {which} model selects K = {expected}", verdict, f"held-out, by K: {listed}")
    yield _better(found, "buffered", "gaussian-buffered", "transition_error")


def _ion(found: Mapping[str, Any]) -> Iterator[Claim]:
    results, settings = found["results"], found["settings"]
    fast, slow = (results[each]["seconds_to_target"] for each in ("buffered", "batch"))
    ratio = slow / fast
    verdict = CONFIRMED if ratio >= 300 else REFUTED
    evidence = (
        f"{ratio:.3g} times as fast to a transition error of {settings['target_error']:.2g}; one batch step takes as "
        f"long as {settings['steps_of_sgrld_per_batch_step']:.3g} steps on windows"
    )
    yield Claim("SG-RLD is about 1,000 times faster than batch RLD", verdict, evidence)


def _variational(found: Mapping[str, Any]) -> Iterator[Claim]:
    results = found["results"]
    for data, seen in found["pairs"].items():
        exact, approximate = (results[f"{each}-{data}"]["rms_correlation"] for each in ("gibbs", "svi"))
        mean, error = seen["missing_squared_correlation"]
        ratio = results[f"svi-{data}"]["median_sd_ratio"]
        evidence = (
            f"root mean square {approximate:.3f} against {exact:.3f} of Gibbs, squares differ by "
            f"{mean:.2g} ± {error:.1g}; standard deviations are {ratio:.2f} of the exact ones (median)"
        )
        # Where parameters are hardly correlated at all, there is nothing to underestimate.
        verdict = _decide(mean, error, seen["pairs"]) if exact > CORRELATED else OPEN
        yield Claim(f"on {data}, variational posteriors underestimate correlations", verdict, evidence)
