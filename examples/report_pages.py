#!/usr/bin/env python3
"""Make the pictures of docs/reports.md again: pages of a run and of a sweep, in a real browser.

    pip install 'unloader[report]' selenium          # and Debian's chromium and chromium-driver
    examples/report_pages.py --run /extract/orders --sweep sweep.json

Without --run a demo is unloaded first, and without --sweep there is no picture of one. Each page is
shown light in a window of 1280 pixels, and dark in one of 390.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"
UNLOADER = (sys.executable, "-m", "unloader")
LOOKS = (("light", 1280), ("dark", 390))
MOST_HIGH = 2600
"""Pixels; of a longer page the rest is left out of the picture."""

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)


def main() -> None:
    """Make the pages and the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", help="directory of a finished run; by default a demo is made")
    parser.add_argument("--sweep", help="what `unloader sweep --json` wrote")
    parser.add_argument("--rows", default="2M", help="rows of the demo")
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the pictures go")
    asked = parser.parse_args()
    asked.images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = asked.run or _demo(Path(folder), asked.rows)
        pages = {"report-run": run, **({"report-sweep": asked.sweep} if asked.sweep else {})}
        for name, place in pages.items():
            page = Path(folder) / f"{name}.html"
            subprocess.run([*UNLOADER, "report", place, "--output", str(page)], check=True)
            _take(page, asked.images / name)


def _demo(folder: Path, rows: str) -> str:
    subprocess.run([*UNLOADER, "demo", "--rows", rows, "--dir", str(folder / "demo")], check=True)
    return str(folder / "demo" / "csv")


def _take(page: Path, picture: Path) -> None:
    """Show a page, and keep how it looks."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        for scheme, width in LOOKS:
            target = picture.with_name(f"{picture.name}-{scheme}-{width}.png")
            _look(driver, page, scheme, width, target)
            print(target)
    finally:
        driver.quit()


def _look(driver: Any, page: Path, scheme: str, width: int, target: Path) -> None:
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
    _size(driver, width, 900)
    driver.get(page.absolute().as_uri())
    high = driver.execute_script("return document.documentElement.scrollHeight")
    _size(driver, width, min(high, MOST_HIGH))
    driver.save_screenshot(str(target))


def _size(driver: Any, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


if __name__ == "__main__":
    main()
