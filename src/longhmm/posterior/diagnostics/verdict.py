"""One verdict on a run: whether its draws can be trusted, and if not, why not.

The checks run from the sampler to the model. Chains must agree and be long enough (R-hat, ESS); their draws must
satisfy the identities that exact gradients impose (`bias`), which no agreement between chains can replace; and the
model must fit (`fit`), since at millions of observations the posterior of a wrong model is
absurdly narrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any, Literal, get_args

import numpy as np

from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError
from longhmm.posterior.diagnostics.bias import Gradient, bias, entries, worst
from longhmm.posterior.diagnostics.convergence import convergence
from longhmm.posterior.diagnostics.fit import misfits
from longhmm.posterior.draws import Draws, entry_table

Kind = Literal[
    "trust", "run longer", "biased", "the model does not fit", "another mode is as good", "chains agree, rest unchecked"
]

MOST_R_HAT, LEAST_ESS = 1.01, 400.0  # beyond: run longer
APART_R_HAT, ALONE_R_HAT = 1.5, 1.1  # chains that are steady by themselves and far from one another: separate modes


@dataclass(frozen=True)
class Verdict:
    """What the checks say.

    Attributes:
        kind: "trust", or what is wrong. Without data only the chains can be judged, and the kind says so.
        reason: one sentence.
        details: the numbers behind it, by name.
    """

    kind: Kind
    reason: str
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"

    def _repr_html_(self) -> str:
        numbers = {name: f"{each:.4g}" if isinstance(each, float) else str(each) for name, each in self.details.items()}
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(each)}</td></tr>" for name, each in numbers.items())
        return f"<p><b>{escape(self.kind)}</b>: {escape(self.reason)}</p><table><tbody>{rows}</tbody></table>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for storage."""
        return asdict(self)

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> Verdict:
        """Inverse of `to_dict`."""
        if stored.get("kind") not in get_args(Kind) or not isinstance(stored.get("details"), dict):
            raise DataError(f"The stored verdict must be of a known kind, got {stored.get('kind')!r}.")
        return Verdict(stored["kind"], str(stored["reason"]), dict(stored["details"]))


def verdict(
    posterior: Draws,
    data: Any = None,
    *,
    gradients: int = 32,
    blocks: int = 400,
    gradient: Gradient | None = None,
    half_step: bool = False,
    progress: Progress | None = None,
) -> Verdict:
    """Judge a posterior; for the arguments see `Posterior.diagnose`. A limit counts as passed only beyond chance: of
    right results each kind of check calls 2 in 1,000 wrong, over all parameters at once.

    - run longer: R-hat above 1.01, or bulk or tail ESS below 400, of any parameter.
    - another mode is as good: the run found one, or its chains are steady but far apart.
    - biased: the mean of a parameter is off by more than 0.1 posterior sd, or its sd by more than 10 %; or the run
      had to leave out windows.
    - the model does not fit: residuals are correlated (above 0.1) or not normal (probabilities off by more than 0.02,
      more than 0.1 % beyond four standard deviations), dwell times are not those of the model (chances to leave off by
      more than 10 %), or the sandwich sd is more than 1.5 times the posterior's.
    - trust: none of these.
    """
    details: dict[str, Any] = {}
    numbers = convergence(posterior.draws)
    found = _modes(posterior, numbers) or _chains(posterior, numbers, details)
    if found is not None:
        return Verdict(*found, details)
    if data is None:
        return Verdict(
            "chains agree, rest unchecked",
            f"R-hat is at most {details['r_hat']:.3f} and ESS at least {details['ess']:.0f}; pass the data to check "
            "for bias and fit.",
            details,
        )
    sequences = open_data(data)
    found = _biased(posterior, sequences, details, gradients, gradient, half_step, progress)
    if found is not None:
        return Verdict(*found, details)
    reasons = misfits(posterior, sequences, blocks, details)
    if reasons:
        return Verdict("the model does not fit", f"{'. Also, '.join(reasons)}.", details)
    checked = "no bias was found" if "shift" in details else "bias was not checked"
    return Verdict("trust", f"the chains agree, {checked}, and the model fits.", details)


def _modes(posterior: Draws, numbers: Mapping[str, Any]) -> tuple[Kind, str] | None:
    kind: Kind = "another mode is as good"
    noted = [note.removeprefix(f"{kind}: ") for note in posterior.notes if "another mode" in note]
    if noted:
        return kind, f"{noted[0].rstrip('.')}; fewer states or informative priors often decide between them."
    if posterior.n_chains < 2:
        return None
    together, where = _extreme(numbers["r_hat"], max)
    if not together > APART_R_HAT:
        return None
    chains = (posterior.draws.isel(chain=[chain]) for chain in range(posterior.n_chains))
    if max(_extreme(convergence(alone)["r_hat"], max)[0] for alone in chains) >= ALONE_R_HAT:
        return None
    return kind, (
        f"each chain is steady, but they sit in different places (R-hat of {where} is {together:.2f}); "
        "fewer states or informative priors often decide between them."
    )


def _chains(posterior: Draws, numbers: Mapping[str, Any], details: dict[str, Any]) -> tuple[Kind, str] | None:
    wrong = [~np.isfinite(value).reshape(*value.shape[:2], -1).all(axis=2) for value in posterior.coordinates.values()]
    if np.any(wrong):
        return "run longer", f"{int(np.any(wrong, axis=0).sum())} draws are not finite numbers."
    r_hat, where = _extreme(numbers["r_hat"], max)
    sizes = [_extreme(numbers[name], min) for name in ("ess_bulk", "ess_tail")]
    ess, poorest = min(sizes)
    details.update(r_hat=r_hat, r_hat_of=where, ess=ess, ess_of=poorest)
    if np.isnan(r_hat) or np.isnan(ess):
        return "run longer", f"{posterior.n_draws} draws per chain are too few to judge."
    complaints = []
    if r_hat > MOST_R_HAT:
        complaints.append(f"R-hat of {where} is {r_hat:.3f}, above {MOST_R_HAT}")
    if ess < LEAST_ESS:
        factor = int(np.ceil(LEAST_ESS / max(ess, 1.0)))
        complaints.append(
            f"ESS of {poorest} is {ess:.0f}, below {LEAST_ESS:.0f} (at least {factor} times the draws are needed)"
        )
    return ("run longer", f"{'; '.join(complaints)}.") if complaints else None


def _biased(
    posterior: Draws,
    sequences: Sequences,
    details: dict[str, Any],
    gradients: int,
    gradient: Gradient | None,
    half_step: bool,
    progress: Progress | None,
) -> tuple[Kind, str] | None:
    noted = [note.removeprefix("biased: ") for note in posterior.notes if note.startswith("biased: ")]
    found = noted[0] if noted else None
    if found is None and (gradients > 0 or gradient is not None):
        found = bias(posterior, sequences, gradients, details, gradient, progress)
    if found is None and half_step:
        found = _bias_of_steps(posterior, sequences, details)
    return None if found is None else ("biased", f"{found.rstrip('.')}. Draw more, or use sampler=lh.NUTS().")


def _bias_of_steps(posterior: Any, sequences: Sequences, details: dict[str, Any]) -> str | None:
    """What a short run with half the step says against the draws, if anything; numbers to `details`."""
    from longhmm.posterior.half_step import compare_halved

    found = compare_halved(posterior, sequences)
    if found is None:
        details["half_step"] = "this sampler has no step to halve"
        return None
    names = entries(posterior).names
    far, wide = worst(found, names, details, "half_step_")
    if far is not None:
        return f"half the step moves the mean of {names[far]} by {-found.shift[far]:+.2f} posterior sd"
    if wide is not None:
        return f"the interval of {names[wide]} is {found.sd_ratio[wide]:.2f} times as wide as with half the step"
    return None


def _extreme(numbers: Any, pick: Any) -> tuple[float, str]:
    """The worst entry over all parameters and its name; NaN if there is none."""
    known = {name: value for name, value in entry_table(numbers).items() if not np.isnan(value)}
    if not known:
        return float("nan"), ""
    worst = pick(known, key=known.__getitem__)
    return known[worst], worst
