"""Every block of Python on a page, and in the README, runs: in order, in one namespace per page, in an empty folder."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("", "coming_from", "reference")  # of docs, with pages that are written by hand
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += [page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("*.md"))]
SLOW = {
    "README.md", "add_emission.md", "add_sampler.md", "buffer.md", "covariates.md", "emissions.md", "kinetics.md",
    "known_states.md", "online.md", "samplers.md", "sampling.md", "states.md", "verdict.md",
    "depmixs4.md", "hmmlearn.md", "movehmm.md", "qub.md", "stan.md",
}  # fmt: skip
FENCE = re.compile(r"^(?P<indent> *)```python *\n(?P<code>.*?)^(?P=indent)``` *$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[int, str]]:
    """First line and code of every block."""
    text = page.read_text(encoding="utf-8")
    found = FENCE.finditer(text)
    return [(text[: each.start("code")].count("\n") + 1, textwrap.dedent(each["code"])) for each in found]


def parameters() -> list:
    pages = [page for page in PAGES if blocks(page)]
    return [pytest.param(page, id=page.name, marks=[pytest.mark.slow] * (page.name in SLOW)) for page in pages]


@pytest.mark.parametrize("page", parameters())
def test_code_on_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for line, code in blocks(page):
        # Lines are counted as on the page, so that a failure can be found.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)


def test_no_block_is_overlooked():
    for page in PAGES:
        assert page.read_text(encoding="utf-8").count("```python") == len(blocks(page)), page.name


def test_every_page_is_in_the_navigation_and_links_lead_somewhere():
    listed = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    docs = ROOT / "docs"
    pages = [*PAGES[2:], docs / "reproduction" / "index.md"]
    made = {docs / "tutorials" / f"{script.stem}.md" for script in (ROOT / "examples" / "tutorials").glob("*.py")}
    assert listed == {page.relative_to(docs).as_posix() for page in [*pages, *made]}
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            found = (page.parent / target).resolve()
            assert found in made or found.exists(), f"{page.name} links to {target}"


def test_the_list_for_language_models_names_every_page():
    listed = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    pages = re.findall(r"- (.+): ([\w/]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert len(pages) > 15
    for title, page in pages[1:]:  # behind the first, which is home
        assert f"- [{title}]({page})" in listed


def test_commands_and_options_on_the_page_exist():
    """Against the command line itself, not against its help."""
    import typer
    from typer.testing import CliRunner

    from longhmm.cli import app

    text = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    command = typer.main.get_command(app)
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == set(command.commands) - {"reproduce"}
    known = {option for each in command.commands.values() for one in each.params for option in one.opts}
    assert set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", text)) <= known | {"--help"}
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0
