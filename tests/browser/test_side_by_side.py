"""Two runs in a real browser: beside each other where there is room, below where there is not, moving together."""

import pytest

from browser.chromium import browser, missing
from browser.test_page import click, look, opened, settle
from longhmm.report import html, side_by_side
from longhmm.report.side_by_side import write_side_by_side
from report.pages import make_run

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    runs = [make_run(tmp_path_factory.mktemp("side"))[0] for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_by_side, "picture", lambda *args, **options: html.Safe(""))
        return write_side_by_side(*runs).as_uri()


@pytest.fixture(scope="module")
def driver():
    with browser() as found:
        yield found


def views(page) -> list[tuple[str, str]]:
    settle(page)
    script = "return [...document.querySelectorAll('.trace')].map((each) => [each.dataset.start, each.dataset.stop])"
    return [tuple(each) for each in page.execute_script(script)]


def test_recordings_move_together(driver, address):
    look(driver, width=1400)
    page = opened(driver, address)
    whole = views(page)
    assert whole[0] == whole[1] == ("0", "3000")
    click(page, ".run:first-child [data-do=in]")
    first = views(page)
    assert first[0] == first[1] != whole[0]
    click(page, ".run:last-child [data-do=next]")
    second = views(page)
    assert second[0] == second[1] != first[0]
    assert page.get_log("browser") == []


@pytest.mark.parametrize("width", [1400, 400])
def test_runs_stand_beside_or_below_each_other(driver, address, width):
    look(driver, width=width)
    page = opened(driver, address)
    script = "return [...document.querySelectorAll('.run')].map((each) => each.getBoundingClientRect().toJSON())"
    left, right = page.execute_script(script)
    if width > 1000:
        assert left["top"] == right["top"] and left["right"] <= right["left"]
    else:
        assert left["bottom"] <= right["top"] and left["left"] == right["left"]
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.get_log("browser") == []


def test_names_belong_to_one_run(driver, address):
    look(driver, width=1400)
    page = opened(driver, address)
    page.execute_script("localStorage.clear()")
    page = opened(driver, address)
    page.execute_script("for (const each of document.querySelectorAll('.naming')) each.closest('details').open = true")
    field = page.find_element("css selector", ".run:first-child [aria-label='name of state 0']")
    field.send_keys("closed\t")
    settle(page)
    legends = [each.text for each in page.find_elements("css selector", ".legend")]
    assert "closed" in legends[0] and "closed" not in legends[1]
