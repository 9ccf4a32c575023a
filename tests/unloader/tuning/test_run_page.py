"""The page of a run: its figures, hostile names, and runs of many units."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from msgspec.structs import replace
from reports.manifests import BYTES, HOSTILE, ROWS, manifest
from reports.reading import Page, agrees, at

from unloader.tuning.report_page import page_of
from unloader.tuning.run_report import MOST_BARS, run_report


@pytest.fixture(scope="module")
def hostile() -> Page:
    """The page of a run in which everything has a hostile name."""
    return Page(page_of(run_report(manifest(name=HOSTILE))))


def test_every_figure_is_that_of_the_json(hostile: Page) -> None:
    """The page shows the figures of its JSON, to the shown digits."""
    document = hostile.document
    wrong = [each for each in hostile.figures if not agrees(each, at(document, each.key))]
    assert wrong == []
    keys = {each.key for each in hostile.figures}
    assert {"totals.rows", "bars.0.seconds", "workers.3.stages.fetch_s", "samples.4.rows"} < keys
    assert document == json.loads(msgspec.json.encode(run_report(manifest(name=HOSTILE))))


def test_hostile_names_are_text(hostile: Page) -> None:
    """A name makes no element and ends none, wherever it stands."""
    assert hostile.tags.count("script") == 1
    assert not {"img", "iframe", "object"} & set(hostile.tags)
    assert not [each for each in hostile.attributes if each[0].startswith("on")]
    assert hostile.document["bars"][3]["partition"] == HOSTILE
    assert "49" not in {each.shown for each in hostile.figures if "partition" in each.key}
    names = [each for each in hostile.figures if each.key.endswith(".partition")]
    assert names
    assert {each.shown for each in names} <= {HOSTILE, ""}
    assert any(HOSTILE in title for title in hostile.titles), "what the mouse is told of a bar"


def test_nothing_is_fetched(hostile: Page) -> None:
    """No address is in the page but its icon, which is empty, and the policy allows none."""
    addresses = [
        value
        for name, value in hostile.attributes
        if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset")
    ]
    assert addresses == ["data:,"]
    assert not re.search(r"@import|url\(", hostile.text)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    assert ("content", f"{policy}form-action 'none'") in hostile.attributes


def test_what_a_run_was_like() -> None:
    """Skew, stages and speed are worked out from the manifest."""
    found = run_report(manifest(units=4, workers=2, failed=1))
    first, second, third, fourth = (0.5, 0.75, 1.0, 1.25)
    assert found.spread.median_s == (second + third) / 2
    assert (found.spread.longest_s, found.spread.longest_unit) == (fourth, "00004")
    assert found.spread.first_worker_idle_s == 2.0 + first + 0.01 + third
    assert found.spread.last_worker_idle_s == 2.0 + second + 0.01 + fourth
    assert found.spread.busy_share == round(3.5 / (2 * 2.01), 4)
    assert found.stages.fetch_s == pytest.approx(0.6 * 3.5)
    assert [each.rows for each in found.workers] == [2 * ROWS, 2 * ROWS]
    assert [each.unit for each in found.slowest] == ["00004", "00003", "00002", "00001"]
    assert [(bar.worker, bar.unit, bar.outcome) for bar in found.bars] == [
        (0, "00001", "failed"),
        (0, "00001", "done in a retry"),
        (0, "00003", "done"),
        (1, "00002", "done"),
        (1, "00004", "done"),
    ]
    passed = found.samples[1].at_s - found.samples[0].at_s
    assert found.samples[1].bytes_per_second == pytest.approx(4 * BYTES / 20 / passed, rel=1e-3)


def test_many_units_share_bars() -> None:
    """Of 20,000 units there are as many bars as can be drawn; they cover all units."""
    run = manifest(units=20_000, workers=64, failed=0)
    found = run_report(run)
    assert found.units_per_bar == 16
    assert MOST_BARS / 2 < len(found.bars) <= MOST_BARS
    assert sum(bar.units for bar in found.bars) == 20_000
    assert sum(bar.rows for bar in found.bars) == run.totals.rows
    assert len(found.slowest) == 50


def test_units_of_an_earlier_process() -> None:
    """What a resumed run had is counted, and is on no timeline: no one knows when it was."""
    run = manifest(units=6, workers=2, failed=0)
    kept = [replace(unit, started_s=None) for unit in run.units[:2]]
    found = run_report(replace(run, units=(*kept, *run.units[2:])))
    assert (found.spread.units, found.spread.units_kept) == (6, 2)
    assert [bar.unit for bar in found.bars] == ["00003", "00005", "00004", "00006"]
    assert [each.ended_s is not None for each in found.workers] == [True, True]
    page = Page(page_of(found))
    shown = {each.key: each.shown for each in page.figures}
    assert (shown["spread.units_kept"], shown["spread.units"]) == ("2", "6")
    began = {each["unit"]: each["started_s"] for each in page.document["slowest"]}
    assert (began["00001"], began["00002"]) == (None, None)
    assert [each for each in page.figures if not agrees(each, at(page.document, each.key))] == []
    none = run_report(replace(run, units=tuple(replace(u, started_s=None) for u in run.units)))
    assert (none.bars, none.spread.units_kept, none.spread.busy_share) == ((), 6, None)
    assert [each.ended_s for each in none.workers] == [None, None]


def test_changes_of_the_number_of_workers() -> None:
    """Each has the number before it; without samples to draw them over there is a table alone."""
    run = manifest(units=6, workers=4, failed=0)
    found = run_report(run)
    assert [(each.before, each.workers, each.cause) for each in found.steps] == [
        *((None, 2, "start"), (2, 4, "trial"), (4, 1, "limit"), (1, 4, "limit"))
    ]
    assert [each.rows_per_second for each in found.steps] == [None, 1520.5, 1490.0, 760.25]
    short = run_report(replace(run, samples=(), efficiency=None, units=()))
    page = Page(page_of(short))
    assert ("id", "steps") in page.attributes
    assert ("id", "speed") not in page.attributes
    shown = {each.key: each.shown for each in page.figures}
    assert shown["steps.2.reason"] == "other programs have 9 active sessions (--max-db-load 9) "
    assert shown["steps.0.before"] == "–"


def test_efficiency(hostile: Page) -> None:
    """Each rate is held against its ceiling in its unit, and the other rates have a reason."""
    shown = {each.key: each.shown for each in hostile.figures}
    of_disk = [shown[f"efficiency.parts.0.{key}"] for key in ("share", "rate", "ceiling")]
    assert of_disk == ["90.8%", "451.0 MB/s", "496.9 MB/s"]
    assert shown["efficiency.parts.1.ceiling"] == "4,400,000 rows/s"
    assert shown["efficiency.taken_at"] == "2026-10-31T12:00:00+00:00"
    run = manifest(units=2, workers=1, failed=0)
    plain = page_of(run_report(replace(run, efficiency=None, parallelism_steps=None)))
    assert "Efficiency" not in plain
    assert "Changes of the number of workers" not in plain
