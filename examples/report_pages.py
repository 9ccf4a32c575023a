#!/usr/bin/env python3
"""Make the pictures of docs/reports.md again: pages of a run and of a sweep, in a real browser.

    pip install 'unloader[duckdb,report,sweep]' selenium      # and Debian's chromium-driver
    examples/report_pages.py
    examples/report_pages.py --run /extract/orders --sweep sweep.json --ceilings ceilings.json

Without these options the script uses the reference table in DuckDB: its ceilings, an adaptive run,
and a sweep. Their pages are shown light in a window of 1280 pixels, and dark in one of 390. The
page of the points in published_points.csv, which is always the same, is shown dark and wide.
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
PUBLISHED = Path(__file__).with_name("published_points.csv")
MOST_HIGH = 1250
"""Pixels; of a longer page the rest is left out of the picture."""

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)


def main() -> None:
    """Make the pages and the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", help="directory of a finished run; by default a run is made")
    parser.add_argument(
        "--sweep", help="output of `unloader sweep --json`; by default a sweep is made"
    )
    parser.add_argument("--ceilings", help="file of `unloader preflight --save`, for the sweep")
    parser.add_argument("--rows", default="3M", help="rows of the reference table")
    parser.add_argument("--images", type=Path, default=IMAGES, help="directory for the pictures")
    asked = parser.parse_args()
    asked.images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, sweep, ceilings = asked.run, asked.sweep, asked.ceilings
        if run is None or sweep is None:
            made = _made(folder, asked.rows)
            run, sweep = run or made[0], sweep or made[1]
            ceilings = ceilings or made[2]
        held = ("--ceilings", ceilings) if ceilings else ()
        for kind, place in (("run", (run,)), ("sweep", (sweep, *held))):
            page = folder / f"{kind}.html"
            _unloader("report", *place, "--output", str(page))
            _take(page, asked.images / f"report-{kind}", LOOKS)
        published, page = folder / "published.json", folder / "published.html"
        points = _unloader("sweep", "--replay", str(PUBLISHED), "--json", keep=True)
        published.write_text(points, encoding="utf-8")
        _unloader("report", str(published), "--output", str(page))
        _take(page, asked.images / "report-published", (("dark", 1280),))


def _made(folder: Path, rows: str) -> tuple[str, str, str]:
    """Return the directory of a run, and the files of a sweep and of ceilings."""
    _unloader("demo", "--rows", rows, "--dir", str(folder / "demo"))
    table = (f"duckdb://{folder}/demo/reference.duckdb", "--table", "HASH_PART_0160")
    run, sweep, ceilings = (str(folder / each) for each in ("run", "sweep.json", "ceilings.json"))
    _unloader("preflight", *table, "--to", run, "--save", ceilings)
    adaptive = ("--parallelism", "adaptive", "--max-sessions", "5", "--ceilings", ceilings)
    _unloader("run", *table, "--to", run, *adaptive)
    levels = ("--parallelism", "1,2,3,4")
    text = _unloader("sweep", *table, *levels, "--to", str(folder / "points"), "--json", keep=True)
    Path(sweep).write_text(text, encoding="utf-8")
    return run, sweep, ceilings


def _unloader(*arguments: str, keep: bool = False) -> str:
    """Run the command; return its standard output if that is kept."""
    pipe = subprocess.PIPE if keep else None
    done = subprocess.run([*UNLOADER, *arguments], check=True, stdout=pipe, text=True)
    return done.stdout or ""


def _take(page: Path, picture: Path, looks: tuple[tuple[str, int], ...]) -> None:
    """Show a page, and keep how it looks in each scheme and width."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        for scheme, width in looks:
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
