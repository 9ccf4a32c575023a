"""Chromium and its driver: installed if need be, started, and asked what a page did.

Both are Debian's packages, and are installed if this is root and apt-get is there. What is there
already is taken as it is.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SWITCH = "UNLOADER_TEST_BROWSER"
"""Set to `off` in the environment, nothing is installed or started."""

PACKAGES = ("chromium", "chromium-driver")
_WANTED = f"install {' and '.join(PACKAGES)}"
_PROGRAMS = ("chromium", "chromedriver")
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=60", "-o", "Dpkg::Use-Pty=0")
_SECONDS = 300
_LOCK = "unloader-vm"
"""Folder of the cache with the lock of tests/vm, which calls apt-get, too: it takes one call at a
time, and another one fails."""

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb"),
)


class Missing(Exception):
    """There is no browser here; the text says why."""


def prepared(*, install: bool = True) -> None:
    """Install the browser if it is not there.

    Args:
        install: Whether that may be done.

    Raises:
        Missing: It cannot be had.
    """
    if os.environ.get(SWITCH) == "off":
        raise Missing(f"{SWITCH} is off")
    if _is_there():
        return
    if not install:
        raise Missing(f"{_WANTED}, or run the long tests, which do")
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"{_WANTED}: this is not root with apt-get")
    with _alone():
        if _is_there():
            return  # Another process of tests was first.
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *PACKAGES, "fonts-dejavu-core")
    if not _is_there():
        raise Missing(f"{_WANTED}: the packages of that name here bring no {_PROGRAMS[1]}")


def _is_there() -> bool:
    return all(map(shutil.which, _PROGRAMS))


@contextmanager
def _alone() -> Iterator[None]:
    """Keep out the other processes of the tests that install something."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _LOCK
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "lock").open("a")
    except OSError as error:
        raise Missing(f"{_WANTED}: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _apt(*arguments: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            [*_APT, *arguments], env=env, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        took = f"apt-get {arguments[0]} took more than {_SECONDS} s"
        raise Missing(f"{_WANTED}: {took}") from None
    if done.returncode:
        said = (done.stderr.strip() or "nothing was said").splitlines()
        raise Missing(f"{_WANTED}: apt-get {arguments[0]} failed: {said[-1]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a browser made of a page."""

    errors: tuple[str, ...]
    """Lines of the console that are no information."""
    requests: tuple[str, ...]
    """Addresses that were asked for, but for the page itself and what lies in it."""
    document_width: int
    window_width: int
    background: str
    found: Any
    """What the script returned."""


class Browser:
    """One running browser."""

    def __init__(self, driver: Any) -> None:
        """Take the driver."""
        self._driver = driver

    def look(
        self, page: Path, *, width: int, dark: bool, script: str, shot: Path | None = None
    ) -> Look:
        """Open a page from its file; return what it did.

        Args:
            page: The file.
            width: Of the window, in pixels.
            dark: What the user prefers.
            script: JavaScript that returns what is to be found.
            shot: Gets a picture of the whole page.
        """
        driver, scheme = self._driver, "dark" if dark else "light"
        feature = {"name": "prefers-color-scheme", "value": scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self._size(width, 900)
        self._log("browser"), self._log("performance")  # Of what was open before.
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
