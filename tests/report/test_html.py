"""Pieces of HTML: durations as people write them, and pictures with captions."""

from longhmm.report import html


def test_durations():
    assert [html.duration(each) for each in (5.59e-5, 0.0022, 1.0, 0.999998, 300.0, 86400.0)] == [
        "55.9 µs", "2.20 ms", "1.00 s", "1.00 s", "5.00 min", "24.0 h",
    ]  # fmt: skip


def test_every_picture_of_a_page_has_a_caption():
    """Also those that few models have: the baseline of a drift."""
    import ast
    from pathlib import Path

    drawn = {
        node.args[0].value
        for file in Path(html.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "picture"
    }
    assert "baseline" in drawn and drawn <= set(html.CAPTIONS) and set(html.CAPTIONS) >= html.WIDE
