"""The page in a real browser: what a person would see, click and zoom."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from browser.chromium import browser, missing
from longhmm.data.sequences import open_data
from longhmm.posterior.diagnostics.verdict import Verdict
from longhmm.report import subject as pack
from longhmm.report.page import build_page
from longhmm.report.subject import Scan, Subject
from longhmm.report.viewer import Viewer
from posterior.fakes import gaussian_model
from report.pages import make_posterior, without_buffer_report, without_pictures

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

LENGTH = 120_000
SPIKES = (60_010, 60_018)  # close neighbours, one point of the whole picture
TITLE = '<img src=x onerror=alert(1)> & "recording".abf'


@pytest.fixture(scope="module")
def subject():
    """A recording whose states are known, so that nothing has to be fitted or decoded."""
    rng = np.random.default_rng(0)
    path = np.zeros(LENGTH, np.uint8)
    for start in range(1000, LENGTH, 2000):
        path[start : start + 300] = 1
    values = (6.0 * path - 3.0 + rng.normal(size=LENGTH)).astype(np.float32)
    values[list(SPIKES)] = 12.0
    data = open_data(values)
    posterior = make_posterior(gaussian_model(), data)
    posterior.verdict = Verdict("trust", "the chains agree.", {"r_hat": 1.0, "ess": 900.0})
    shares = np.stack([255 * (path == 0), 255 * (path == 1)], axis=1).astype(np.uint8)
    events = posterior.events(data, path=path)
    return Subject(posterior, data, TITLE, 10_000.0, "pA", found=Scan(path, shares), events=events)


@pytest.fixture(scope="module")
def address(subject, tmp_path_factory):
    with without_buffer_report():
        place = tmp_path_factory.mktemp("browser") / "page.html"
        place.write_text(build_page(subject), encoding="utf-8")
    return place.as_uri()


@pytest.fixture(scope="module")
def driver():
    with browser() as found:
        yield found


@pytest.fixture
def page(driver, address):
    """The page, freshly opened in daylight on a wide screen."""
    look(driver)
    return opened(driver, address)


def look(driver, *, dark: bool = False, width: int = 1200) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def opened(driver, address):
    driver.get_log("browser")  # what earlier pages said
    driver.get(address)
    wait(driver, "return document.querySelector('.trace').dataset.ready === 'yes'")
    settle(driver)
    return driver


def wait(driver, script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 20, poll_frequency=0.05).until(lambda each: each.execute_script(script))


def settle(driver) -> None:
    """Let everything be drawn that was asked for."""
    driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done));")


def view(driver) -> SimpleNamespace:
    settle(driver)
    found = driver.execute_script("return {...document.querySelector('.trace').dataset}")
    return SimpleNamespace(start=int(found["start"]), stop=int(found["stop"]), step=int(found["step"]))


def drawn(driver, a: float, b: float) -> np.ndarray:
    """The upper ends of the columns when the samples from a to b are shown."""
    driver.execute_script("document.querySelector('.trace').trace.show(arguments[0], arguments[1])", a, b)
    settle(driver)
    return np.array(driver.execute_script("return document.querySelector('.trace').trace.shown.columns[0].high"), float)


def click(driver, selector: str) -> None:
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", one(driver, selector))
    one(driver, selector).click()
    settle(driver)


def one(driver, selector: str):
    return driver.find_element("css selector", selector)


def test_it_loads_without_a_word_in_the_console(page):
    assert page.get_log("browser") == []
    assert page.title == f"{TITLE} · longhmm"
    assert one(page, "h1").text == TITLE
    assert page.find_elements("css selector", "img, iframe, object") == []


def test_the_verdict_is_the_first_thing_seen(page):
    verdict = one(page, ".verdict")
    assert verdict.is_displayed() and "The result can be trusted" in verdict.text
    assert verdict.rect["y"] + verdict.rect["height"] < 450  # on the first screen
    assert verdict.rect["y"] < one(page, ".trace").rect["y"] < one(page, "table[aria-label=states]").rect["y"]


def test_tables_and_drawings_are_there(page):
    for label, rows in (("states", 2), ("transition probabilities per sample", 2), ("parameters", 6)):
        assert len(page.find_elements("css selector", f"table[aria-label='{label}'] tbody tr")) == rows
    drawings = page.find_elements("css selector", "figure svg")
    assert len(drawings) >= 6 and all(each.rect["width"] > 200 and each.rect["height"] > 80 for each in drawings)
    assert all(each.rect["x"] + each.rect["width"] <= 1200 for each in drawings)


def test_zooming_shows_more_detail(page):
    whole = drawn(page, 0, LENGTH)
    peaks = np.flatnonzero(whole > 11)
    assert peaks.max() - peaks.min() <= 1  # both spikes in one place
    close = drawn(page, SPIKES[0] - 40, SPIKES[0] + 60) > 11
    edges = np.flatnonzero(np.diff(close.astype(int)) == 1)
    assert len(edges) == 2  # two, and something between them
    apart = (edges[1] - edges[0]) / len(close) * 100
    assert apart == pytest.approx(SPIKES[1] - SPIKES[0], abs=0.2)
    assert "every sample" in one(page, ".trace-status").text


def test_the_canvas_shows_the_trace_and_the_colours_of_states(page):
    drawn(page, 990, 1400)
    script = """
        const canvas = document.querySelector('.trace-main');
        const found = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = {};
        for (let i = 0; i < found.length; i += 4) if (found[i + 3] === 255) {
            const key = [found[i], found[i + 1], found[i + 2]].join(); seen[key] = (seen[key] || 0) + 1;
        }
        return seen;"""
    seen = page.execute_script(script)
    blue, orange = seen["0,114,178"], seen["213,94,0"]
    # Below the trace 300 of 410 samples are coloured for state 1 and the rest for state 0.
    assert 0.6 < orange / (orange + blue) < 0.85


def test_buttons_keys_wheel_and_mouse_move_the_view(page):
    from selenium.webdriver import ActionChains, Keys

    assert (view(page).start, view(page).stop) == (0, LENGTH)
    click(page, "[data-do=in]")
    assert view(page).stop - view(page).start == LENGTH // 2
    middle = view(page)
    click(page, "[data-do=right]")
    assert view(page).start == middle.start + LENGTH // 4
    canvas = one(page, ".trace-main")
    canvas.send_keys("+")
    assert view(page).stop - view(page).start == LENGTH // 4
    before = view(page)
    canvas.send_keys(Keys.ARROW_LEFT)
    assert view(page).start == before.start - LENGTH // 20
    before = view(page)
    ActionChains(page).move_to_element(canvas).click_and_hold().move_by_offset(200, 0).release().perform()
    assert view(page).start < before.start - 3000 and view(page).stop - view(page).start == LENGTH // 4
    before = view(page)
    ActionChains(page).scroll_from_origin(_origin(canvas), 0, -200).perform()
    after = view(page)
    assert after.stop - after.start < 0.8 * (before.stop - before.start)
    ActionChains(page).move_to_element(canvas).double_click().perform()
    assert view(page).stop - view(page).start < 0.3 * (after.stop - after.start)
    canvas.send_keys(Keys.HOME)
    assert (view(page).start, view(page).stop) == (0, LENGTH)


def _origin(element):
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    return ScrollOrigin.from_element(element)


def test_the_wheel_scrolls_the_page_until_the_trace_is_touched(page):
    from selenium.webdriver import ActionChains

    page.execute_script("document.querySelector('.trace').scrollIntoView()")
    top = page.execute_script("return scrollY")
    ActionChains(page).scroll_from_origin(_origin(one(page, ".trace-main")), 0, 120).perform()
    wait(page, f"return scrollY > {top}")
    assert (view(page).start, view(page).stop) == (0, LENGTH)


def test_the_strip_below_goes_anywhere(page):
    from selenium.webdriver import ActionChains

    drawn(page, 0, 2000)
    strip = one(page, ".trace-strip")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", strip)
    ActionChains(page).move_to_element_with_offset(strip, int(strip.rect["width"] / 4), 0).click().perform()
    found = view(page)
    assert found.stop - found.start == 2000 and 0.65 * LENGTH < found.start < 0.8 * LENGTH


def test_events_can_be_stepped_through_and_listed(page, subject):
    starts = subject.events[subject.events["state"] == 1]["start"].to_numpy()
    assert one(page, ".trace-state").get_attribute("value") == "1"  # the rarer state
    click(page, "[data-do=next]")
    first = view(page)
    inside = starts[(starts >= first.start) & (starts < first.stop)]
    assert len(inside) == 1 and first.stop - first.start < 5000
    click(page, "[data-do=next]")
    second = view(page)
    assert second.start == pytest.approx(first.start + 2000, abs=2)
    click(page, "[data-do=previous]")
    assert view(page).start == pytest.approx(first.start, abs=2)
    rows = "table[aria-label='visits to states'] tbody tr"
    assert len(page.find_elements("css selector", rows)) == 15
    page.execute_script(
        "const s = document.querySelector('.events-state'); s.value = '1'; s.dispatchEvent(new Event('change'))"
    )
    assert one(page, ".events-place").text == f"1 to 15 of {len(starts)}"
    click(page, "[data-do=on]")
    assert one(page, ".events-place").text == f"16 to 30 of {len(starts)}"
    click(page, f"{rows}:nth-child(3) button")
    found = view(page)
    assert found.start < starts[17] < found.stop


def test_fitting_the_height_shows_the_outliers(page):
    def top(a: int, b: int) -> float:
        drawn(page, a, b)
        return float(page.execute_script("return document.querySelector('.trace').trace.shown.columns[0].top"))

    quiet, loud = (1350, 2900), (SPIKES[0] - 300, SPIKES[0] + 300)
    assert top(*quiet) == top(*loud)  # one scale everywhere
    click(page, ".trace-fit")
    assert top(*quiet) < 3 and 12 < top(*loud) < 14


def luminance(driver, selector: str, what: str) -> float:
    shown = driver.execute_script(
        f"return getComputedStyle(document.querySelector(arguments[0])).getPropertyValue('{what}')", selector
    )
    parts = np.array([float(each) for each in shown[shown.index("(") + 1 : -1].split(",")[:3]]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("dark", [False, True])
def test_texts_can_be_read_by_day_and_by_night(driver, address, dark):
    look(driver, dark=dark)
    opened(driver, address)
    ground = luminance(driver, "body", "background-color")
    assert (ground < 0.05) == dark
    selectors = ("h1", ".facts", ".verdict h2", ".verdict .hint", "figcaption", ".trace-status", "thead th", "td small")
    for selector in selectors:
        light, low = sorted((luminance(driver, selector, "color"), ground), reverse=True)
        assert (light + 0.05) / (low + 0.05) >= 4.5, selector
    ink = luminance(driver, "figure svg text", "fill")
    light, low = sorted((ink, ground), reverse=True)
    assert (light + 0.05) / (low + 0.05) >= 4.5
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_on_a_phone(driver, address, dark):
    look(driver, dark=dark, width=390)
    opened(driver, address)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
    assert one(driver, ".verdict").rect["y"] < 200
    assert one(driver, ".trace-main").rect["width"] > 320
    small = [each for each in driver.find_elements("css selector", ".bar button") if each.rect["height"] < 32]
    assert small == []  # fingers need room
    assert driver.get_log("browser") == []


def test_the_viewer_fetches_the_samples_themselves(driver, subject, monkeypatch):
    monkeypatch.setattr(pack, "TRACE_BINS", 2000)  # as if the recording were sixty times as long
    look(driver)
    with without_pictures(), Viewer(subject) as viewer:
        thread = threading.Thread(target=viewer.serve_forever)
        thread.start()
        try:
            opened(driver, viewer.url)
            assert view(driver).step == 64
            drawn(driver, SPIKES[0] - 40, SPIKES[0] + 60)
            wait(driver, "return document.querySelector('.trace').dataset.step === '1'")
            high = drawn(driver, SPIKES[0] - 40, SPIKES[0] + 60) > 11
            assert (np.diff(high.astype(int)) == 1).sum() == 2
            assert driver.get_log("browser") == []
        finally:
            viewer.shutdown()
            thread.join()


def test_without_the_viewer_the_same_page_stays_coarse(driver, subject, tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "TRACE_BINS", 2000)
    with without_pictures():
        (tmp_path / "page.html").write_text(build_page(subject), encoding="utf-8")
    look(driver)
    opened(driver, (tmp_path / "page.html").as_uri())
    high = drawn(driver, SPIKES[0] - 40, SPIKES[0] + 60) > 11
    assert view(driver).step == 64 and (np.diff(high.astype(int)) == 1).sum() <= 1


@pytest.mark.slow
def test_a_million_points_are_drawn_within_a_frame_or_two(driver, tmp_path):
    rng = np.random.default_rng(0)
    length = 20_000_000
    values = rng.standard_normal(length, np.float32)
    path = np.repeat(rng.integers(0, 2, length // 100, dtype=np.uint8), 100)
    data = open_data(values)
    posterior = make_posterior(gaussian_model(), data)
    shares = np.stack([255 * (path == 0), 255 * (path == 1)], axis=1).astype(np.uint8)
    subject = Subject(posterior, data, "long", found=Scan(path, shares), events=posterior.events(data, path=path))
    with without_pictures():
        (tmp_path / "page.html").write_text(build_page(subject), encoding="utf-8")
    assert (tmp_path / "page.html").stat().st_size < 20_000_000
    look(driver)
    opened(driver, (tmp_path / "page.html").as_uri())
    script = """
        const trace = document.querySelector('.trace').trace, times = [];
        for (let width = 2e7; width > 1000; width /= 1.7) {
            trace.show(1e7 - width / 2, 1e7 + width / 2);
            const start = performance.now(); trace.draw(); times.push(performance.now() - start);
        }
        return times.sort((a, b) => a - b)[times.length >> 1];"""
    assert driver.execute_script(script) < 50  # milliseconds, in the middle of all zooms
