"""The baseline on the page."""

from longhmm.report import plots
from longhmm.report.html import Safe, element, picture, section
from longhmm.report.plots.style import number
from longhmm.report.subject import Subject


def baseline(subject: Subject) -> list[Safe]:
    """The line with its interval, and how far it goes; nothing where levels do not drift."""
    posterior = subject.posterior
    if posterior.model.emission.drift is None:
        return []
    middle = posterior.baseline()["mean"]
    ends = f"{number(middle.min(), 3)} and {number(middle.max(), 3)} {subject.model_unit}".rstrip()
    said = element("p", f"All levels move together, by between {ends} about their mean.")
    rate, unit = subject.rate, subject.model_unit
    found = [
        section("h3", "Baseline", said, picture("baseline", lambda: plots.baseline(posterior, rate=rate, unit=unit)))
    ]
    if posterior.model.emission.drift.gain is not None:
        found.append(section("h3", "Gain", picture("gain", lambda: plots.baseline(posterior, rate=rate, gain=True))))
    return found
