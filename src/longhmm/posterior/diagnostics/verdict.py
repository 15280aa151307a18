"""One verdict on a run: whether its draws can be trusted, and if not, why not. Checks go from the sampler to the model:
at millions of observations the posterior of a wrong one is absurdly narrow, which agreeing chains cannot show."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any, Literal, Self, get_args

import numpy as np

from longhmm.backends.stream import Progress
from longhmm.data.shown import html_table
from longhmm.errors import DataError
from longhmm.posterior.diagnostics.bias import Gradient, bias, by_passes, step_bias
from longhmm.posterior.diagnostics.model_fit import judge_fit
from longhmm.posterior.draws import Draws, entry_table
from longhmm.posterior.summary import convergence
from longhmm.run.compilation import cached_compilation
from longhmm.samplers.spare_states import put_down

Kind = Literal[
    "trust", "run longer", "too many states", "biased", "the model does not fit",
    "another mode is as good", "chains agree, rest unchecked",
]  # fmt: skip

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
        said = f"<p><b>{escape(self.kind)}</b>: {escape(self.reason)}</p>"
        return said + html_table(("check", "value"), numbers.items())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for storage."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        if stored.get("kind") not in get_args(Kind) or not isinstance(stored.get("details"), dict):
            raise DataError(f"The stored verdict must be of a known kind, got {stored.get('kind')!r}.")
        return cls(stored["kind"], str(stored["reason"]), dict(stored["details"]))


class Judging(Draws):
    """Draws that are put to the checks behind the verdict."""

    @cached_compilation()
    def diagnose(
        self,
        data: Any = None,
        *,
        gradients: int = 32,
        blocks: int = 400,
        gradient: Gradient | None = None,
        half_step: bool = False,
        progress: Progress | None = None,
    ) -> Verdict:
        """Run the checks behind the verdict, and keep what they say.

        A limit counts as passed only beyond chance: of right results each kind of check calls 1 in 1,000 wrong, over
        all parameters at once.

        Looked at are, in this order, agreement and number of draws, competing modes, bias of means and widths, and the
        fit of the model: what is checked and from which size on it counts is on the page "Reading the verdict".

        Args:
            data: the data of the run; without them nothing but the chains can be judged.
            gradients: at how many draws to evaluate the exact gradient, one pass over the data each; 0 leaves it out.
            blocks: how many stretches of data to compare for the sandwich.
            gradient: a function from coordinates by name to the exact gradient, instead of passes over the data.
            half_step: run the chains again for a short while with half the step, and compare. Off by default, since
                exact gradients see the same error, and more, for less.
            progress: called with the number of rows that an exact gradient has done.
        """
        details: dict[str, Any] = {}
        numbers = convergence(self.draws)
        found = _modes(self, numbers) or _chains(self, numbers, details)
        if found is None and data is None:
            r_hat, ess = details["r_hat"], details["ess"]
            told = f"R-hat is at most {r_hat:.3f}, ESS at least {ess:.0f}; pass the data to check for bias and fit."
            found = "chains agree, rest unchecked", told
        if found is None:
            sequences = self.model.opened(data)
            noted = (note.removeprefix("biased: ") for note in self.notes if note.startswith("biased: "))
            biased = next(noted, None)
            if biased is None and (gradients > 0 or gradient is not None):
                biased = bias(self, gradient or by_passes(self.model, sequences, progress), gradients, details)
            if biased is None and half_step:
                biased = step_bias(self, sequences, details)
            if biased is not None:
                found = "biased", f"{biased.rstrip('.')}. Draw more, or use sampler=lh.NUTS()."
        if found is None:
            reasons, fits = judge_fit(self, sequences, blocks, details)
            checked = "no bias was found" if "shift" in details else "bias was not checked"
            found = "trust", f"the chains agree, {checked}, and {fits}."
            if reasons:
                found = "the model does not fit", f"{'. Also, '.join(reasons)}."
        self.verdict = Verdict(*put_down(self.notes, found, details), details)
        return self.verdict


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
        complaints.append(f"ESS of {poorest} is {ess:.0f}, below {LEAST_ESS:.0f} (it needs {factor} times the draws)")
    return ("run longer", f"{'; '.join(complaints)}.") if complaints else None


def _extreme(numbers: Any, pick: Any) -> tuple[float, str]:
    known = {name: value for name, value in entry_table(numbers).items() if not np.isnan(value)}
    if not known:
        return float("nan"), ""
    worst = pick(known, key=known.__getitem__)
    return known[worst], worst
