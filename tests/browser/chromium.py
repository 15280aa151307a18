"""A real browser without a window, for tests of pages; there is a reason to skip where none is installed."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1200,900",
)  # fmt: skip


def missing() -> str | None:
    """Why there is no browser, or None."""
    if CHROMIUM is None or DRIVER is None:
        return "Chromium and its driver are not installed (Debian: chromium, chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (pip install 'longhmm[dev]')"
    return None


@contextmanager
def browser() -> Iterator[Any]:
    """A browser with a profile of its own, closed afterwards."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        driver.set_page_load_timeout(60)
        driver.set_script_timeout(30)
        try:
            yield driver
        finally:
            driver.quit()
