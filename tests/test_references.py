"""What to cite follows from what was run, and there is one version."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.references import REFERENCES
from longhmm.samplers import SAMPLERS

ROOT = Path(__file__).parents[1]


def test_software_and_paper_are_always_cited():
    text = lh.citation().text
    assert f"longhmm: Bayesian hidden Markov models for very long sequences. version {lh.__version__}." in text
    assert "Ma, Y.-A., Foti, N. J. and Fox, E. B. (2017). Stochastic gradient MCMC methods for hidden Markov" in text
    assert len(text.splitlines()) == 2


def test_a_posterior_is_cited_by_the_sampler_that_drew_it():
    posterior = SimpleNamespace(settings={"sampler": lh.NUTS.name})
    assert lh.citation(posterior) == lh.citation(lh.NUTS())
    assert lh.citation(posterior).keys == ("longhmm", "ma2017", "hoffman2014")
    assert lh.citation(SimpleNamespace(settings={"sampler": "my own"})).keys == ("longhmm", "ma2017")
    assert lh.citation(SimpleNamespace(settings={}, build=None)).keys == ("longhmm", "ma2017")
    with pytest.raises(ModelError, match="run must be a posterior or a sampler, got str"):
        lh.citation("NUTS")


def test_every_sampler_says_what_it_rests_on():
    cited = set()
    for name, sampler in SAMPLERS.classes().items():
        if not sampler.__module__.startswith("longhmm."):
            continue  # other tests register some
        assert set(sampler.cites) <= set(REFERENCES), name
        assert sampler.cites, name
        cited |= set(sampler.cites)
    assert cited | {"longhmm", "ma2017"} == set(REFERENCES)


def test_bibtex_is_well_formed():
    whole = lh.citation(lh.SGRLD(step_size=1e-6))
    entries = whole.bibtex.split("\n\n")
    assert [re.match(r"@\w+\{(\w+),\n", entry)[1] for entry in entries] == list(whole.keys)
    for entry in entries:
        assert entry.count("{") == entry.count("}") and entry.endswith("\n}")
        assert {"author", "title", "year"} <= set(re.findall(r"^  (\w+) = \{.+\},$", entry, re.MULTILINE))
    assert str(whole) == f"{whole.text}\n\n{whole.bibtex}"


def test_there_is_one_version():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {lh.__version__}\n" in cited and 'title: "longhmm: ' in cited
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "longhmm.version.__version__"}
    assert version("longhmm") == lh.__version__
