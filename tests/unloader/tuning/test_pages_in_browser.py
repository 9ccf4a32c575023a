"""The pages in a real browser: light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from long_tests import also
from reports import sweeps
from reports.manifests import HOSTILE, manifest
from reports.reading import Figure, agrees, at

from unloader.tuning.report_page import page_of
from unloader.tuning.report_records import run_report, sweep_report

KIND = "a browser"

PAGES: dict[str, Callable[[], str]] = {
    "run": lambda: page_of(run_report(manifest(name=HOSTILE, nodes=12, workers=12))),
    "many": lambda: page_of(run_report(manifest(units=20_000, workers=64, failed=5))),
    "points": lambda: page_of(sweep_report(sweeps.replay())),
    "sweep": lambda: page_of(sweep_report(sweeps.analysed(HOSTILE), sweeps.ceilings())),
    "settings": lambda: page_of(sweep_report(sweeps.live())),
}

FIND = """
const seen = e => e.getClientRects().length > 0;
return {
  document: JSON.parse(document.getElementById('report').textContent),
  figures: [...document.querySelectorAll('data')].map(e =>
    ({key: e.dataset.key, value: e.value, form: e.dataset.form, shown: e.textContent})),
  charts: [...document.querySelectorAll('svg')].filter(seen).map(e => ({
    kind: e.getAttribute('class'), name: e.getAttribute('aria-label'),
    width: e.getBoundingClientRect().width, height: e.getBoundingClientRect().height,
    marks: e.querySelectorAll('title').length,
    outside: [...e.querySelectorAll('text')].filter(t => {
      const a = t.getBoundingClientRect(), b = e.getBoundingClientRect();
      return a.width && (a.left < b.left - 2 || a.right > b.right + 2);
    }).map(t => t.textContent)})),
  resources: performance.getEntriesByType('resource').map(e => e.name),
  policy: document.querySelector('meta[http-equiv="Content-Security-Policy"]').content,
  elements: [...new Set([...document.querySelectorAll('*')].map(e => e.localName))],
  ink: getComputedStyle(document.body).color,
  bar: (e => e && getComputedStyle(e).fill)(document.querySelector('svg .mark-rect path')),
};
"""


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[chromium.Browser]:
    """A running Chromium, or a skip with the reason.

    It is installed if the long tests are run; a plain run takes it if it is there.
    """
    here = (item for item in request.session.items if item.path == request.path)
    try:
        chromium.prepared(install=any(item.get_closest_marker("long") for item in here))
    except chromium.Missing as missing:
        pytest.skip(f"no browser: {missing}")
    with chromium.browser() as found:
        yield found


@pytest.fixture(scope="module", params=["run", *also(KIND, *list(PAGES)[1:])])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One page after the other, as a file."""
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    path.write_text(PAGES[request.param](), encoding="utf-8")
    return path


@pytest.mark.long("pages in a browser")
def test_page_in_a_browser(browser: chromium.Browser, page: Path) -> None:
    """No error, no request, nothing wider than the window; each figure equals the JSON."""
    looks: dict[tuple[int, bool], chromium.Look] = {}
    for width in (1280, 390):
        for dark in (False, True):
            look = browser.look(page, width=width, dark=dark, script=FIND)
            looks[width, dark] = look
            assert look.errors == ()
            assert look.requests == (), "the page fetches nothing"
            assert look.found["resources"] == []
            assert look.found["policy"].startswith("default-src 'none'; ")
            assert (look.document_width, look.window_width) == (width, width)
            _check(look.found, "wide" if width == 1280 else "narrow", width)
    assert page.stat().st_size < 4_000_000, "it is small, however many units the run had"
    light, dark_one = looks[1280, False], looks[1280, True]
    assert light.background == "rgb(252, 252, 251)"
    assert dark_one.background == "rgb(25, 26, 24)"
    assert light.found["ink"] != dark_one.found["ink"]
    assert light.found["bar"] != dark_one.found["bar"], "charts follow the page's colours"


@pytest.mark.long(KIND)
def test_what_a_page_must_not_do_is_seen(browser: chromium.Browser, tmp_path: Path) -> None:
    """A page that fetches, fails and is too wide is detected, so the test above can fail."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><img src='other.png'><p style='width:2000px'>wide</p>"
        "<script>console.error('it failed')</script>"
    )
    script = "return performance.getEntriesByType('resource').map(e => e.name)"
    look = browser.look(page, width=390, dark=False, script=script)
    assert [Path(each).name for each in look.requests] == ["other.png"]
    assert any("it failed" in each for each in look.errors)
    assert look.document_width > look.window_width == 390


def _check(found: dict[str, Any], kind: str, width: int) -> None:
    figures = [Figure(**each) for each in found["figures"]]
    assert len(figures) > 20
    document = found["document"]
    assert [each for each in figures if not agrees(each, at(document, each.key))] == []
    assert found["charts"], "no chart is seen"
    for chart in found["charts"]:
        assert chart["kind"] == kind, "one of the two drawings is shown"
        assert 200 < chart["width"] <= width
        assert chart["height"] > 40
        assert chart["marks"] > 0, f"{chart['name']}: no mark tells what it is"
        assert chart["outside"] == [], f"{chart['name']}: text is cut"
    assert not {"img", "iframe", "object", "embed"} & set(found["elements"])
