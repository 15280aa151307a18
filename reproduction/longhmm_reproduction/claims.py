"""The paper's claims, each held against what an experiment found: confirmed, not decided, or refuted, with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from longhmm_reproduction.scoring import mean_and_error

CONFIRMED, OPEN, REFUTED = "confirmed", "not decided", "refuted"
# Standard errors by which a mean of n repetitions must differ from zero: 97.5 % quantiles of Student's t.
DECIDED = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}
MANY = 2.0
CORRELATED = 0.05
MOST_STATES = 4  # that the paper tried
ARRIVED = 0.75  # of the chains on windows, if their speed is to be judged
THOUSAND, ABOUT = 1000.0, 3.0  # what the paper says, and the factor within which that is about right
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
        sentence = "the buffer report predicts a larger bias for uniform than for stationary starts"
        yield Claim(sentence, _decide(mean, error, len(seen)), evidence)
    yield _better(found, "default", "buffered", "transition_error")


def _lognormal(found: Mapping[str, Any]) -> Iterator[Claim]:
    tried = [each for each in found["settings"]["states"] if each <= MOST_STATES]
    for which, expected in (("lognormal", 2), ("gaussian", 4)):
        if expected in tried and len(tried) > 1:
            yield _selects(found, which, expected, tried)
    for goal, words in (("to_truth", "reaches the true"), ("to_mode", "comes to its own mode's")):
        yield _sooner(found["iterations"], goal, words, found["settings"]["tolerance"])
    yield _better(found, "buffered", "gaussian-buffered", "transition_error")


def _selects(found: Mapping[str, Any], which: str, expected: int, tried: Sequence[int]) -> Claim:
    """The fewest states that are not significantly worse than the best number, by blocks of held-out observations."""
    blocks = {int(each): np.asarray(values) for each, values in found["blocks"][which].items()}
    scores = {each: float(blocks[each].mean()) for each in tried}
    best = max(scores, key=lambda each: scores[each])
    worse = {each for each in tried if _gain(blocks, best, each)[2] == CONFIRMED}
    selected = min(set(tried) - worse)
    # Where fewer states do as well as the data can tell, that is no evidence against more.
    verdict = CONFIRMED if selected == expected else REFUTED if expected in worse else OPEN
    listed = ", ".join(f"{each}: {value:.4f}" for each, value in scores.items())
    evidence = f"selected K = {selected}; held-out, by K: {listed}"
    for fewer, more in pairwise(tried):
        mean, error, _ = _gain(blocks, more, fewer)
        evidence += f"; K = {more} gains {mean:.2g} ± {error:.1g}"
    if beyond := sorted(set(blocks) - set(tried)):
        mean, error, _ = _gain(blocks, beyond[0], max(tried))
        evidence += f"; K = {beyond[0]}, which the paper did not try, gains {mean:.2g} ± {error:.1g} more"
    return Claim(f"the {which} model selects K = {expected} of 1 to {max(tried)}", verdict, evidence)


def _gain(blocks: Mapping[int, np.ndarray], one: int, other: int) -> tuple[float, float, str]:
    """What one number of states gains over another, block by block: mean, standard error, verdict."""
    mean, error = mean_and_error(blocks[one] - blocks[other])
    return mean, error, _decide(mean, error, len(blocks[one]))


def _sooner(seen: Mapping[str, Any], goal: str, words: str, tolerance: float) -> Claim:
    """Every log-normal chain against every Gaussian one: whichever come first, all of them, were faster."""
    ours, others = ([np.inf if each is None else each for each in seen[which][goal]] for which in seen)
    verdict = CONFIRMED if max(ours) < min(others) else REFUTED if max(others) < min(ours) else OPEN
    told = [_range(each, seen[which]["taken"]) for which, each in zip(seen, (ours, others), strict=True)]
    sentence = f"the log-normal model {words} transition matrix, to {tolerance:g}, sooner than the Gaussian one"
    return Claim(sentence, verdict if len(ours) > 1 else OPEN, f"{told[0]} against {told[1]} iterations")


def _range(values: Sequence[float], taken: int) -> str:
    low, high = min(values), max(values)
    if not np.isfinite(high):
        missed = sum(not np.isfinite(each) for each in values)
        return f"{missed} of {len(values)} chains not in {taken:,}"
    return f"{low:,.0f} to {high:,.0f}"


def _ion(found: Mapping[str, Any]) -> Iterator[Claim]:
    told = []
    for name, seen in found["recordings"].items():
        ratio = seen["speed_ratio"]
        logs = np.log(ratio["values"]) if ratio["values"] else np.zeros(1)
        mean, error = mean_and_error(logs)
        # A chain on windows that never arrived says nothing; one bad start decides nothing, many would.
        enough = len(ratio["values"]) >= ARRIVED * (len(ratio["values"]) + ratio["undecided"])
        verdict = _decide(mean, error, len(logs)) if enough else OPEN
        evidence = (
            f"{_times(ratio)} to a transition error of {seen['target_error']:.2g}; one batch step takes as long as "
            f"{seen['steps_of_sgrld_per_batch_step']:,.0f} steps on windows"
        )
        yield Claim(f"on {name}, SG-RLD is faster than batch RLD", verdict, evidence)
        told.append(f"{_times(ratio)} on {name}")
    substitutes = all(seen["substitute"] for seen in found["recordings"].values())
    middle = [float(np.median(seen["speed_ratio"]["values"] or np.nan)) for seen in found["recordings"].values()]
    close = all(THOUSAND / ABOUT <= each <= THOUSAND * ABOUT for each in middle)
    verdict = OPEN if substitutes else CONFIRMED if close else REFUTED
    remark = "measured on substitutes, not on the paper's recording: " if substitutes else ""
    yield Claim(
        "SG-RLD is about 1,000 times faster than batch RLD",
        verdict,
        remark + ", ".join(told) + "; with other step sizes it would differ",
    )


def _times(ratio: Mapping[str, Any]) -> str:
    """A ratio of speeds in words: median and range over chains."""
    values = ratio["values"]
    if not values:
        return "no chain on windows arrived"
    text = f"{np.median(values):.3g} times as fast ({min(values):.2g} to {max(values):.2g} over {len(values)} chains"
    if ratio["at_least"]:
        text += f", {ratio['at_least']} of them at least"
    if ratio["undecided"]:
        text += f"; {ratio['undecided']} on windows never arrived"
    return text + ")"


def _variational(found: Mapping[str, Any]) -> Iterator[Claim]:
    for data in found["pairs"]:
        exact, approximate = (found["results"][f"{each}-{data}"] for each in ("gibbs", "svi"))
        missing = found["repetitions"][f"svi-{data}"]["missing_squared_correlation"]
        mean, error = mean_and_error(missing)
        evidence = (
            f"root mean square {approximate['rms_correlation']:.3f} against {exact['rms_correlation']:.3f} of Gibbs, "
            f"squares differ by {mean:.2g} ± {error:.1g} over {len(missing)} data sets"
        )
        # Where parameters are hardly correlated at all, there is nothing to underestimate.
        verdict = _decide(mean, error, len(missing)) if exact["rms_correlation"] > CORRELATED else OPEN
        yield Claim(f"on {data}, variational posteriors underestimate correlations", verdict, evidence)
        ratios = found["repetitions"][f"svi-{data}"]["median_sd_ratio"]
        mean, error = mean_and_error(ratios)
        evidence = (
            f"variational / exact {mean:.3f} ± {error:.1g} in the median, {approximate['least_sd_ratio']:.2f} at "
            f"least, over {len(ratios)} data sets"
        )
        sentence = f"on {data}, variational posteriors underestimate standard deviations"
        yield Claim(sentence, _decide(1.0 - mean, error, len(ratios)), evidence)
