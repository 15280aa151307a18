"""A run on disk with its recording, small but complete, for tests of the page."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from longhmm import plots
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.serialise import model_to_config
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics.verdict import Verdict
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.run_directory import RunDirectory
from longhmm.report import findings, html
from longhmm.report import page as whole
from posterior.fakes import chains_of, gaussian_model

TRUTH = {"transition": np.array([[0.97, 0.03], [0.01, 0.99]]), "mean": np.array([-3.0, 3.0])}
SPIKE = (2321, 40.0)  # one sample far from all others


def make_run(folder: Path, name: str = "recording.npy", length: int = 3000, **request) -> tuple[Path, Path]:
    """The directory of a run and its recording; draws are scattered around the truth."""
    model = gaussian_model()
    values = simulate(model, TRUTH, length, seed=4)[1][:, 0]
    if length > SPIKE[0]:
        values[SPIKE[0]] = SPIKE[1]
    recording = folder / name
    np.save(recording, values)
    posterior = make_posterior(model, open_data(recording))
    posterior.verdict = Verdict("trust", "the chains agree & all is <well>.", {"r_hat": 1.001, "r_hat_of": "mean[0]"})
    run = RunDirectory.create(
        folder / "run",
        {
            "recordings": [str(recording)],
            "preprocessing": Preprocessing().to_dict(),
            "model": model_to_config(model),
            "sample": {},
            "rate": 10_000.0,
            "unit": "pA",
            **request,
        },
    )
    run.save(posterior)
    return run.path, recording


@contextmanager
def without_buffer_report() -> Iterator[None]:
    """Pages without the picture that takes longer to compile than all the others; a slow test has it."""

    def refuse(*args, **options):
        raise ModelError("the buffer report is left out here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "buffer_report", refuse)
        yield


@contextmanager
def without_pictures() -> Iterator[None]:
    """Pages of text, tables and the recording, where pictures are not the point."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (findings, whole):
            patch.setattr(module, "picture", lambda *args, **options: html.Safe(""))
        yield


def make_posterior(model, sequences) -> Posterior:
    rng = np.random.default_rng(1)
    counts = 500 * TRUTH["transition"]
    natural = {
        "transition": np.stack([rng.dirichlet(row, size=(4, 150)) for row in counts], axis=2),
        "mean": TRUTH["mean"] + 0.02 * rng.normal(size=(4, 150, 2)),
    }
    return Posterior.from_chains(model, chains_of(model, natural, notes=("a note with <i>marks</i>",)), sequences)
