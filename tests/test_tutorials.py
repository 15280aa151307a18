"""Tutorials are scripts: each runs, shows what it claims, and is a notebook that runs as well."""

import json
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = spec_from_file_location("tutorial_pages", ROOT / "docs" / "tutorial_pages.py")
pages = sys.modules["tutorial_pages"] = module_from_spec(spec)
spec.loader.exec_module(pages)
ALL = [pytest.param(script, id=script.stem) for script in pages.scripts()]
SCRIPT = """# %% [markdown]
# # A title
# and text

# %%
import matplotlib.pyplot as plt
x = 2
print("two", x)
plt.plot([x])

# %%
figure = plt.figure()
plt.close(figure)
figure
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "small.py"
    file.write_text(SCRIPT, encoding="utf-8")
    return file


def test_a_page_holds_text_code_what_was_printed_and_figures(script):
    import matplotlib.pyplot as plt

    plt.figure()  # left open by someone else, and not on the page
    page = pages.run(script)
    assert page.markdown.startswith("# A title\n\n*Made by `examples/tutorials/small.py`")
    assert '```python\nimport matplotlib.pyplot as plt\nx = 2\nprint("two", x)\nplt.plot([x])\n```' in page.markdown
    assert "```text\ntwo 2\n```\n\n![Figure 1 of this page](small-1.png)" in page.markdown
    assert list(page.figures) == ["small-1.png", "small-2.png"]  # left open, and the value of the last line
    assert all(content.startswith(b"\x89PNG") for content in page.figures.values())


def test_a_cell_that_fails_names_its_line(script):
    script.write_text("# %% [markdown]\n# # A title\n# %%\n\nraise ValueError('no')\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no") as failed:
        pages.run(script)
    where = traceback.extract_tb(failed.tb)[-1]
    assert (where.filename, where.lineno) == (str(script), 5)


def test_a_notebook_has_the_same_cells(script):
    import nbformat

    made = nbformat.reads(json.dumps(pages.notebook(script)), as_version=4)
    nbformat.validate(made)
    assert [cell.cell_type for cell in made.cells] == ["markdown", "code", "code"]
    assert made.cells[0].source == "# A title\nand text"


@pytest.mark.slow
@pytest.mark.parametrize("script", ALL)
def test_tutorials_run(script):
    assert pages.run(script).figures


@pytest.mark.slow
@pytest.mark.parametrize("script", ALL)
def test_tutorials_run_without_recordings(script, tmp_path, monkeypatch):
    """Where data that cannot be passed on are simulated instead."""
    monkeypatch.setenv("LONGHMM_RECORDINGS", str(tmp_path))
    if "data_folder" not in script.read_text(encoding="utf-8"):
        pytest.skip("its data come with longhmm")
    assert pages.run(script).figures


@pytest.mark.slow
@pytest.mark.parametrize("script", ALL)
def test_notebooks_run(script, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    made = nbformat.reads(json.dumps(pages.notebook(script)), as_version=4)
    NotebookClient(made, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_the_gallery_shows_every_picture():
    from longhmm import plots

    drawn = (pages.SCRIPTS / "gallery.py").read_text(encoding="utf-8")
    assert {name for name in plots.__all__ if f"\nlh.plots.{name}(" not in drawn} == set()
