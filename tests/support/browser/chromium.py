"""Chromium and its driver: installed if need be, started, and asked what a page did.

Both are Debian's packages.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import debian
from debian import Missing as Missing

SWITCH = "UNLOADER_TEST_BROWSER"
"""Set to `off` in the environment, nothing is installed or started."""

PACKAGES = ("chromium", "chromium-driver", "fonts-dejavu-core")

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb"),
)


def prepared(*, install: bool = True) -> None:
    """Install the browser if it is not there.

    Args:
        install: Whether that may be done.

    Raises:
        Missing: It cannot be had.
    """
    debian.prepared(("chromium", "chromedriver"), PACKAGES, switch=SWITCH, install=install)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a browser made of a page."""

    errors: tuple[str, ...]
    """Lines of the console above the level of information."""
    requests: tuple[str, ...]
    """Requested addresses, except for the page itself and its parts."""
    document_width: int
    window_width: int
    background: str
    found: Any
    """The result of the script."""


class Browser:
    """One running browser."""

    def __init__(self, driver: Any) -> None:
        """Take the driver."""
        self._driver = driver

    def look(
        self, page: Path, *, width: int, dark: bool, script: str, shot: Path | None = None
    ) -> Look:
        """Open a page from its file; return its actions.

        Args:
            page: The file.
            width: Width of the window, in pixels.
            dark: The user prefers dark colours.
            script: JavaScript that returns the wanted values.
            shot: Gets a picture of the whole page.
        """
        driver, scheme = self._driver, "dark" if dark else "light"
        feature = {"name": "prefers-color-scheme", "value": scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self._size(width, 900)
        self._log("browser"), self._log("performance")  # Drop the entries of earlier pages.
        driver.get(page.as_uri())
        found = driver.execute_script(script)
        wide, high, window, background = driver.execute_script(
            "const d = document.documentElement;"
            "return [Math.max(d.scrollWidth, document.body.scrollWidth), d.scrollHeight,"
            " d.clientWidth, getComputedStyle(document.body).backgroundColor]"
        )
        if shot is not None:
            self._size(width, min(high, 6000))
            driver.save_screenshot(str(shot))
        return Look(
            errors=tuple(each["message"] for each in self._log("browser")),
            requests=tuple(self._requests(page)),
            document_width=wide,
            window_width=window,
            background=background,
            found=found,
        )

    def _size(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def _log(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._driver.get_log(kind)
        return found

    def _requests(self, page: Path) -> Iterator[str]:
        for entry in self._log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if url.partition("#")[0] != page.as_uri() and not url.startswith("data:"):
                    yield url


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a browser with an empty profile; it ends with the context."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "WARNING", "performance": "ALL"})
    with tempfile.TemporaryDirectory(prefix="unloader-browser-") as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
