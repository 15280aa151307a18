"""Pages of tutorials are made of scripts: what a page shows, the script computed while the page was built.

A script in `examples/tutorials` has cells, as editors know them: `# %% [markdown]` begins text in comments, `# %%`
begins code. Code runs in one namespace from top to bottom; what a cell prints, the figures it leaves open, and one that
its last line returns, stand behind it on the page, as in a notebook. The same cells make that notebook, which the page
offers.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

SCRIPTS = Path(__file__).resolve().parents[1] / "examples" / "tutorials"


class Cell(NamedTuple):
    kind: str  # "markdown" or "code"
    text: str
    line: int  # of the script, that its first line is


class Page(NamedTuple):
    markdown: str
    figures: dict[str, bytes]  # by file name


def scripts() -> list[Path]:
    return sorted(SCRIPTS.glob("*.py"))


def cells(script: Path) -> list[Cell]:
    """The cells of a script, in order."""
    found: list[tuple[str, int, list[str]]] = []
    for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# %%"):
            found.append(("markdown" if "[markdown]" in line else "code", number + 1, []))
        elif not found:
            raise ValueError(f"{script.name} must begin with a cell, # %%, got {line!r}")
        else:
            kind, _, lines = found[-1]
            lines.append(line.removeprefix("#").removeprefix(" ") if kind == "markdown" else line)
    made = []
    for kind, number, lines in found:
        text = "\n".join(lines).rstrip()
        made.append(Cell(kind, text.lstrip("\n"), number + len(text) - len(text.lstrip("\n"))))
    return made


def notebook(script: Path) -> dict[str, Any]:
    """The same cells as a notebook."""
    made = []
    for index, (kind, text, _) in enumerate(cells(script)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{index}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def run(script: Path) -> Page:
    """Run a script in an empty folder and write down what it shows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    names: dict[str, Any] = {"__name__": "__main__"}
    parts, figures = [], {}
    before = os.getcwd()
    plt.close("all")  # what someone else left open is not this page's
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for kind, text, line in cells(script):
                if kind == "markdown":
                    parts.append(text)
                    continue
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    # Lines are counted as in the script, so that a failure can be found.
                    last = execute(ast.parse("\n" * (line - 1) + text), str(script), names)
                parts.append(f"```python\n{text}\n```")
                if printed.getvalue().strip():
                    parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
                shown = [plt.figure(number) for number in plt.get_fignums()]
                for figure in [*shown, *([last] if isinstance(last, Figure) else [])]:
                    name, file = f"{script.stem}-{len(figures) + 1}.png", io.BytesIO()
                    figure.savefig(file, dpi=110, facecolor="white")
                    figures[name] = file.getvalue()
                    parts.append(f"![Figure {len(figures)} of this page]({name})")
                plt.close("all")
        finally:
            os.chdir(before)
    offered = f"[{script.stem}.ipynb]({script.stem}.ipynb)"
    made = f"*Made by `examples/tutorials/{script.name}`. The same as a notebook: {offered}.*"
    title, _, rest = parts[0].partition("\n")
    return Page("\n\n".join([title, made, rest.strip("\n"), *parts[1:]]) + "\n", figures)


def execute(tree: ast.Module, file: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line, if that is an expression."""
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), names)
    return eval(compile(ast.Expression(last.value), file, "eval"), names) if last is not None else None


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: adds the pages, their figures and notebooks."""
    from mkdocs.structure.files import File

    for script in scripts():
        page = run(script)
        made: dict[str, str | bytes] = {f"{script.stem}.md": page.markdown, **page.figures}
        made[f"{script.stem}.ipynb"] = json.dumps(notebook(script), indent=1)
        for name, content in made.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files
