"""Where a posterior came from: a request that can be carried out, and goes on from where it stopped."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.progress import Bar
from longhmm.run import checkpoint, policies
from longhmm.run.chains import Chains, Stored
from longhmm.run.compilation import cached_compilation
from longhmm.run.limit import Limit
from longhmm.run.lock import locked
from longhmm.run.request import Request
from longhmm.run.session import find_tuning, keep_tuning, run_session
from longhmm.run.tuning import CHEAPER, Tuning, from_arrays
from longhmm.samplers.contract import Sampler
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.version import __version__

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

WANTED_SHARE = 0.5  # effective draws per draw of the default sampler
PLAIN = ("chains", "draws", "warmup", "thin", "seed", "automatic")


@dataclass(frozen=True)
class Origin:
    """A request, and where its run stopped (None: in its checkpoint).

    `tuning` is that of an earlier run which is to be done again by another sampler.
    """

    request: Request
    stored: Stored | None = None
    tuning: Tuning | None = None

    def settings(self) -> dict[str, Any]:
        """The request as plain values; a sampler that is not longhmm's own is left out."""
        request = self.request
        found: dict[str, Any] = {name: getattr(request, name) for name in PLAIN}
        found["init"] = None if request.init is None else {k: np.asarray(v).tolist() for k, v in request.init.items()}
        for name in ("sampler", "windows", "buffer"):
            try:
                found[name] = policies.to_config(getattr(request, name))
            except ModelError:
                found[name] = None
        return found


def wanted_size(automatic: bool, chains: int, draws: int) -> float:
    """Effective draws that the run should reach by spacing its draws; only the default sampler promises any."""
    return WANTED_SHARE * chains * draws if automatic else 0.0


def go(origin: Origin, progress: bool, limit: Limit, reserve: float = 0.0) -> tuple[Chains, Origin]:
    """Start a run, or go on with one; what it leaves behind, and from where it can go on again.

    `reserve` is the share of the time left after tuning that the chains leave to what comes after them.
    """
    notes: tuple[str, ...] = ()
    with locked(origin.request.checkpoint), cached_compilation(), Bar(progress) as bar:
        bar.phase("reading the data")
        origin = replace(origin, request=limit.run(origin.request.marked, "reading the data"))
        request = replace(origin.request, sequences=limit.watch(origin.request.sequences))
        matched = isinstance(request.sampler, ControlVariateSGLD)
        found = (origin.tuning or find_tuning(request, bar, origin.stored, limit)) if matched else None
        if request.automatic and found is not None and found.exact:
            sampler, notes = exact_sampler(found)
            request = replace(request, sampler=sampler)
        result = run_session(request, bar, found, origin.stored, limit.sooner(reserve))
    settings = {**result.settings, "request": origin.settings(), "versions": versions()}
    if request.checkpoint is not None:
        settings["checkpoint"] = os.path.abspath(request.checkpoint)
    result = result._replace(settings=settings, notes=(*notes, *result.notes))
    return result, replace(origin, stored=result.stored, tuning=None)


def exactly(origin: Origin, why: str) -> Origin:
    """The same request from the beginning, by the exact full-data sampler.

    The checkpoint is told first: a run that is stopped on the way goes on with the exact sampler, too.
    """
    request = origin.request
    assert origin.stored is not None
    found = from_arrays(request.model, request.sequences, origin.stored.arrays)._replace(exact=why)
    if request.checkpoint is not None:
        keep_tuning(request, found)
        checkpoint.remove(request.checkpoint)
    return replace(origin, stored=None, tuning=found)


def exact_sampler(found: Tuning) -> tuple[Sampler, tuple[str, ...]]:
    """The full-data sampler and the note that says so; it learns the shape of the posterior if the mode misled."""
    from longhmm.samplers.full_data_hmc import NUTS

    return NUTS(inverse_mass=np.linalg.inv(found.mode.information) if found.exact == CHEAPER else None), (
        f"the exact full-data sampler (NUTS) was used: {found.exact}",
    )


def versions() -> dict[str, str]:
    """Versions of what computed the draws."""
    here = {"python": platform.python_version(), "backend": jax.default_backend(), "longhmm": __version__}
    return here | {name: _version(name) for name in ("jax", "jaxlib", "numpyro", "numpy")}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def origin_of(posterior: Posterior, data: Any, sampler: Sampler | None) -> Origin:
    """The origin of a posterior that was read from disk: what it asked for, and the checkpoint of its run."""
    settings = posterior.settings
    asked, place = settings.get("request"), settings.get("checkpoint")
    if not isinstance(asked, dict) or place is None:
        raise ModelError(
            "This posterior cannot go on, since its run kept no checkpoint: sample with checkpoint='folder', or extend "
            "before saving."
        )
    if data is None:
        raise ModelError(
            "data must be the data of the run where a posterior was loaded, got None: extend(draws, data)."
        )
    chosen = policies.from_config(asked.get("sampler")) if sampler is None else sampler
    if chosen is None:
        raise ModelError("sampler must be given: the run used one of your own, which is not stored with it.")
    windows, buffer = (policies.from_config(asked.get(name)) for name in ("windows", "buffer"))
    request = Request(
        posterior.model, open_data(data), chosen, windows, buffer, asked["chains"], asked["draws"], asked["warmup"],
        asked["thin"], asked["init"], asked["seed"], None, place, 0.0, automatic=bool(asked["automatic"]),
    )  # fmt: skip
    return Origin(request)
