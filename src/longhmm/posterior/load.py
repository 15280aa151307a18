"""Read a saved run back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from longhmm.errors import DataError, ModelError
from longhmm.model.hmm import HMM
from longhmm.model.serialise import model_from_config
from longhmm.posterior import store
from longhmm.posterior.diagnostics import Verdict
from longhmm.posterior.labels import coordinate_dims, parameter_shapes
from longhmm.posterior.posterior import Posterior

INSIDE_RUN = "posterior"  # where a run of the command line keeps its posterior


def load(path: str | os.PathLike[str], model: HMM | None = None) -> Posterior:
    """Read what `Posterior.save` or `longhmm fit` wrote. Nothing in the directory can run code.

    Args:
        path: the directory.
        model: the model of the run, needed if it contains code of your own (a subclass, a function).
    """
    inner = Path(path) / INSIDE_RUN
    document, groups = store.read_run(inner if (inner / store.DOCUMENT).is_file() else path)
    damaged = DataError(f"{path} does not hold a complete posterior; the run is damaged, restore a copy of it.")
    if model is None:
        if document.get("model") is None:
            raise ModelError(
                f"{path} was made with a model that contains code of your own ({document.get('model_text')}): pass "
                "the same model again, as load(path, model=...)."
            )
        try:
            model = model_from_config(document["model"])
        except ModelError:
            raise
        except Exception:  # a description that save did not write can fail in any way
            raise damaged from None
    if not {"draws", "unconstrained", "sample_stats"} <= set(groups) or not isinstance(document.get("settings"), dict):
        raise damaged
    shapes, dims = parameter_shapes(model), coordinate_dims(model)
    draws = groups["draws"]
    found = {str(name): value.shape[2:] for name, value in draws.items()}
    if found != shapes or set(map(str, groups["unconstrained"])) != set(dims) or draws["transition"].dims[0] != "chain":
        raise ModelError(
            f"{path} holds parameters of shapes {found}, but {model!r} has {shapes}: pass the model of the run."
        )
    mode = groups.get("mode")
    information = groups.get("information")
    try:
        return Posterior(
            model,
            draws[list(shapes)],
            groups["unconstrained"],
            groups["sample_stats"],
            settings=document["settings"],
            notes=tuple(str(note) for note in document["notes"]),
            mode=None if mode is None else model.validate({str(k): np.asarray(v) for k, v in mode.items()}),
            information=None if information is None else np.asarray(information["information"]),
            verdict=None if document["verdict"] is None else Verdict.from_dict(document["verdict"]),
        )
    except (KeyError, TypeError, AttributeError):
        raise damaged from None
