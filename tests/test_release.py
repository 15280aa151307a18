"""What a release says of itself in several places: the version, what it needs, its recipe for conda-forge."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from longhmm.version import __version__

ROOT = Path(__file__).parents[1]
RECIPE = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == yaml.safe_load(RECIPE)["context"]["version"] == __version__
    assert [each["name"] for each in citation["authors"]] == [each["name"] for each in PROJECT["authors"]]
    assert re.search(rf"^## \[{re.escape(__version__)}\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)


def test_the_recipe_needs_what_the_package_needs():
    needed = [re.sub(r"(?=>)", " ", each, count=1) for each in PROJECT["dependencies"]]
    renamed = [each.replace("matplotlib ", "matplotlib-base ") for each in needed]
    recipe = yaml.safe_load(RECIPE)
    assert recipe["requirements"]["run"] == ["python", *renamed]
    assert (recipe["about"]["summary"], recipe["about"]["license"]) == (PROJECT["description"], PROJECT["license"])
    assert all((ROOT / each).is_file() for each in recipe["about"]["license_file"])


@pytest.mark.parametrize("platform", ["linux-64", "linux-aarch64", "osx-arm64", "win-64"])
def test_the_recipe_is_read_by_the_program_that_builds_it(platform):
    builder = pytest.importorskip("rattler_build", reason="py-rattler-build is not installed")
    compilers = "cxx_compiler: [cxx]\ncxx_compiler_version: ['14']\nc_stdlib: [sysroot]\nc_stdlib_version: ['2.17']\n"
    variants = builder.VariantConfig.from_yaml(compilers + 'python: ["3.12.* *_cpython"]\n')
    asked = builder.PlatformConfig(target_platform=platform, build_platform="linux-64", host_platform=platform)
    (made,) = builder.Stage0Recipe.from_yaml(RECIPE).render(variants, builder.RenderConfig(platform=asked))
    built = made.recipe.to_dict()
    assert (built["package"]["name"], str(built["package"]["version"])) == ("longhmm", __version__)
