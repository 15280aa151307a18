"""Verdicts follow the numbers, whatever they are."""

import pytest

from longhmm_reproduction import claims


def outcome(buffered, unbuffered):
    repetitions = {
        name: {"predictive_log_prob": [-value for value in values], "transition_error": values}
        for name, values in (
            ("buffered", buffered),
            ("unbuffered", unbuffered),
            ("iid", [3.0, 3.1, 2.9]),
            ("default", [0.1, 0.1, 0.11]),
        )
    }
    return {
        "experiment": "rc",
        "settings": {},
        "results": {each: {} for each in repetitions},
        "repetitions": repetitions,
    }


@pytest.mark.parametrize(
    ("buffered", "verdict"),
    [
        ([0.5, 0.51, 0.49], claims.CONFIRMED),
        ([1.5, 1.51, 1.49], claims.REFUTED),
        ([0.5, 1.6, 0.9], claims.OPEN),
    ],
)
def test_differences_are_held_against_their_errors(buffered, verdict):
    found = claims.judge(outcome(buffered, [1.0, 1.01, 0.99]))
    about = [claim for claim in found if claim.sentence.startswith("buffered beats unbuffered")]
    assert [claim.verdict for claim in about] == [verdict, verdict]
    others = [claim.verdict for claim in found if claim.sentence.startswith("unbuffered beats iid")]
    assert others == [claims.CONFIRMED, claims.CONFIRMED]


@pytest.mark.parametrize(
    ("stationary", "verdict"), [([1.0, 1.1, 0.9], claims.CONFIRMED), ([4.5, 5.6, 5.0], claims.OPEN)]
)
def test_the_buffer_report_is_held_against_itself(stationary, verdict):
    found = outcome([0.5, 0.51, 0.49], [1.0, 1.01, 0.99])
    seen = [{"uniform": one, "stationary": other} for one, other in zip([5.0, 5.2, 4.9], stationary, strict=True)]
    found["settings"] = {"certificate": seen, "certified": 1000}
    about = [claim for claim in claims.judge(found) if "buffer report" in claim.sentence]
    assert [claim.verdict for claim in about] == [verdict] and "5 against" in about[0].evidence


def test_one_repetition_decides_nothing():
    one = outcome([0.5], [1.0])
    assert claims.compare(one, "buffered", "unbuffered", "transition_error")[2] == claims.OPEN
