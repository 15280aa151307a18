"""What a reader can say on the page, in a real browser: names, merged states, judged events, and the file of them."""

import io

import numpy as np
import pandas as pd
import pytest

from browser.chromium import browser, missing
from browser.test_page import click, look, one, opened, settle, view
from longhmm.data.sequences import open_data
from longhmm.report.page import build_page
from longhmm.report.subject import Scan, Subject
from posterior.fakes import gaussian_model, small_posterior
from report.pages import without_pictures

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
RATE, EVERY = 1000.0, 2


@pytest.fixture(scope="module")
def subject():
    """Three states in two sequences; the second sequence begins in the state in which the first ends."""
    path = np.repeat([0, 1, 2, 1, 0, 1, 2, 0], 50).astype(np.uint8)
    path = np.concatenate([path, path[::-1]])
    values = (4.0 * path + 0.1 * np.random.default_rng(0).normal(size=len(path))).astype(np.float32)
    data = open_data([values[:400], values[400:]])
    posterior = small_posterior(gaussian_model(3))
    shares = 255 * np.eye(3, dtype=np.uint8)[path]
    events = posterior.events(data, path=path)
    return Subject(posterior, data, "judged", RATE, "pA", EVERY, found=Scan(path, shares), events=events)


@pytest.fixture(scope="module")
def driver():
    with browser() as found:
        yield found


@pytest.fixture
def page(driver, subject, tmp_path):
    with without_pictures():
        (tmp_path / "page.html").write_text(build_page(subject), encoding="utf-8")
    look(driver)
    opened(driver, (tmp_path / "page.html").as_uri())
    driver.execute_script("localStorage.clear()")
    return opened(driver, (tmp_path / "page.html").as_uri())


def csv_of(page) -> pd.DataFrame:
    text = page.execute_script("return document.querySelector('.events').events.csv()")
    return pd.read_csv(io.StringIO(text), keep_default_na=False)


def choose(page, selector: str, value: str) -> None:
    script = (
        "const s = document.querySelector(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    )
    page.execute_script(script, selector, value)
    settle(page)


def pixels(page, hue: str) -> int:
    script = """
        const canvas = document.querySelector('.trace-main');
        const found = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let seen = 0;
        for (let i = 0; i < found.length; i += 4) seen += found.slice(i, i + 3).join() === arguments[0];
        return seen;"""
    settle(page)
    return int(page.execute_script(script, hue))


def test_the_file_of_events_is_the_table_of_the_posterior(page, subject):
    found, table = csv_of(page), subject.events
    assert list(found) == ["sequence", "start", "end", "start_s", "end_s", "state", "level", "name", "decision"]
    for name in ("sequence", "state"):
        np.testing.assert_array_equal(found[name], table[name])
    np.testing.assert_array_equal(found[["start", "end"]], EVERY * table[["start", "end"]])  # samples of the file
    np.testing.assert_allclose(found["end_s"], table["end"] / RATE)
    np.testing.assert_allclose(found["level"], table["level"], rtol=1e-9)
    assert one(page, "[data-do=download]").is_displayed() and page.get_log("browser") == []


def test_events_are_accepted_and_rejected_and_stay_so(page):
    rows = "table[aria-label='visits to states'] tbody tr"
    click(page, f"{rows}:nth-child(2) .deeds button:nth-child(2)")
    click(page, f"{rows}:nth-child(3) .deeds button:nth-child(3)")
    assert csv_of(page)["decision"].tolist()[:4] == ["", "accepted", "rejected", ""]
    page.refresh()
    settle(page)
    assert csv_of(page)["decision"].tolist()[:4] == ["", "accepted", "rejected", ""]
    choose(page, ".events-kept", "accepted")
    assert csv_of(page)["start"].tolist() == [100] and one(page, ".events-place").text == "1 to 1 of 1"
    choose(page, ".events-kept", "any")
    click(page, f"{rows}:nth-child(3) .deeds button:nth-child(3)")  # once more takes it back
    assert csv_of(page)["decision"].tolist()[2] == ""


def test_keys_judge_the_event_that_was_gone_to(page):
    canvas = one(page, ".trace-main")
    choose(page, ".trace-state", "2")
    canvas.send_keys("p")
    middle = view(page)
    canvas.send_keys("r")
    settle(page)
    (judged,) = csv_of(page).query("decision == 'rejected'").to_dict("records")
    assert judged["state"] == 2 and middle.start <= judged["start"] / EVERY < middle.stop
    assert "this visit is rejected" in one(page, ".trace-status").text


def test_states_are_named_and_merged(page, subject):
    page.execute_script("document.querySelector('.naming').closest('details').open = true")
    field = one(page, "[aria-label='name of state 0']")
    field.send_keys("closed, =1\t")
    settle(page)
    assert csv_of(page).query("state == 0")["name"].unique().tolist() == ["closed, =1"]
    assert "closed" in one(page, "table[aria-label=states] tbody th").text and "closed" in one(page, ".legend").text
    choose(page, "[aria-label='take state 2 for']", "1")
    path = np.minimum(subject.found.path, 1)
    ends = np.flatnonzero(np.append(path[1:] != path[:-1], True) | (np.arange(800) == 399)) + 1
    found = csv_of(page)
    np.testing.assert_array_equal(found["state"], path[ends - 1])  # one visit where there were three, cut at the end
    np.testing.assert_array_equal(found["end"] / EVERY, np.where(ends > 400, ends - 400, ends))
    assert pixels(page, "0,158,115") == 0  # nothing is left in the colour of state 2
    choose(page, "[aria-label='take state 2 for']", "2")
    assert len(csv_of(page)) == len(subject.events) and pixels(page, "0,158,115") > 0


def test_path_and_probabilities_can_be_hidden(page):
    def coloured() -> int:
        return sum(pixels(page, hue) for hue in ("0,114,178", "213,94,0", "0,158,115"))

    whole = coloured()
    click(page, ".trace-chances")
    less = coloured()
    assert 0 < less < 0.5 * whole
    click(page, ".trace-path")
    assert coloured() == 0
    click(page, ".trace-path")
    assert coloured() == less


def test_hovering_moves_nothing_and_the_contents_lead_somewhere(page):
    from selenium.webdriver import ActionChains

    def below():
        return page.execute_script("return document.querySelector('.legend').getBoundingClientRect().top + scrollY")

    before = below()
    ActionChains(page).move_to_element(one(page, ".trace-main")).perform()
    settle(page)
    assert one(page, ".trace-readout").text and below() == pytest.approx(before, abs=0.5)
    ActionChains(page).move_to_element(one(page, "h1")).perform()
    assert below() == pytest.approx(before, abs=0.5)
    links = page.execute_script("return [...document.querySelectorAll('.contents a')].map((a) => a.hash.slice(1))")
    assert len(links) > 5
    assert page.execute_script("return arguments[0].every((name) => document.getElementById(name))", links)


def test_the_trace_is_on_the_first_screen(page):
    assert one(page, ".trace-main").rect["y"] < 450  # of 900


def test_paper_has_no_buttons_and_hides_nothing(page):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert not one(page, ".trace-strip").is_displayed()
    drawn = page.execute_script("const c = document.querySelector('.trace-main'); return [c.width, c.height]")
    shown = one(page, ".trace-main").rect
    assert shown["width"] / shown["height"] == pytest.approx(drawn[0] / drawn[1], rel=0.01)  # nothing is stretched
    assert not one(page, ".bar").is_displayed() and one(page, ".verdict details p").is_displayed()
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert page.execute_script("return document.querySelectorAll('details[open]').length") == 0
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert page.get_log("browser") == []
