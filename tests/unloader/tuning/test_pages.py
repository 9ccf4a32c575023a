"""Pages of runs and sweeps: figures of their JSON, hostile names, and charts."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from long_tests import OTHER_ROUTES
from msgspec.structs import replace
from reports import sweeps
from reports.manifests import BYTES, HOSTILE, ROWS, manifest
from reports.reading import Page, agrees, at

from unloader.errors import ConfigError
from unloader.tuning.report_page import page_of
from unloader.tuning.report_records import MOST_BARS, run_report, sweep_report
from unloader.tuning.sweep_document import SweepDocument, is_sweep, sweep_of


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
    assert {
        "manifest.totals.rows",
        "bars.0.seconds",
        "workers.3.stages.fetch_s",
        "samples.4.rows",
    } < keys
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
    assert found.spread.longest_s == fourth
    assert found.spread.first_worker_idle_s == 2.0 + first + 0.01 + third
    assert found.spread.last_worker_idle_s == 2.0 + second + 0.01 + fourth
    assert found.spread.busy_share == round(3.5 / (2 * 2.01), 4)
    assert found.stages.fetch_s == pytest.approx(0.6 * 3.5)
    assert [each.record.rows for each in found.workers] == [2 * ROWS, 2 * ROWS]
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
    began = {each["id"]: each["started_s"] for each in page.document["slowest"]}
    assert (began["00001"], began["00002"]) == (None, None)
    assert [each for each in page.figures if not agrees(each, at(page.document, each.key))] == []
    none = run_report(replace(run, units=tuple(replace(u, started_s=None) for u in run.units)))
    assert (none.bars, none.spread.units_kept, none.spread.busy_share) == ((), 6, None)
    assert [each.ended_s for each in none.workers] == [None, None]


def test_changes_of_the_number_of_workers() -> None:
    """Each has a line; without samples to draw them over there is a table alone."""
    run = manifest(units=6, workers=4, failed=0)
    short = run_report(replace(run, samples=(), efficiency=None, units=()))
    page = Page(page_of(short))
    assert ("id", "steps") in page.attributes
    assert ("id", "speed") not in page.attributes
    shown = {each.key: each.shown for each in page.figures}
    assert (
        shown["manifest.parallelism_steps.2.reason"]
        == "other programs have 9 active sessions (--max-db-load 9) "
    )
    assert [shown[f"manifest.parallelism_steps.{at}.workers"] for at in range(4)] == [*"2414"]


def test_efficiency(hostile: Page) -> None:
    """Each rate is held against its ceiling in its unit, and the other rates have a reason."""
    shown = {each.key: each.shown for each in hostile.figures}
    of_disk = [shown[f"manifest.efficiency.parts.0.{key}"] for key in ("share", "rate", "ceiling")]
    assert of_disk == ["90.8%", "451.0 MB/s", "496.9 MB/s"]
    assert shown["manifest.efficiency.parts.1.ceiling"] == "4,400,000 rows/s"
    assert shown["manifest.efficiency.taken_at"] == "2026-10-31T12:00:00+00:00"
    run = manifest(units=2, workers=1, failed=0)
    plain = page_of(run_report(replace(run, efficiency=None, parallelism_steps=None)))
    assert "Efficiency" not in plain
    assert "Changes of the number of workers" not in plain


@pytest.fixture(scope="module")
def hostile_sweep() -> Page:
    """The page of an analysed live sweep in which everything has a hostile name."""
    return Page(page_of(sweep_report(sweeps.analysed(HOSTILE), sweeps.ceilings())))


@pytest.mark.long(OTHER_ROUTES)
def test_every_figure_of_a_sweep_is_that_of_its_json(hostile_sweep: Page) -> None:
    """The page shows the figures of its JSON, to the shown digits."""
    document = hostile_sweep.document
    assert [
        each for each in hostile_sweep.figures if not agrees(each, at(document, each.key))
    ] == []
    keys = {each.key for each in hostile_sweep.figures}
    assert {"sweep.knee", "levels.3.rate", "points.0.median.costs.fetch", "ceilings.0.rate"} < keys


def test_levels_of_published_points() -> None:
    """Levels that do not count are shown with their reasons."""
    found = sweep_report(sweeps.replay())
    states = {level.parallelism: level.state for level in found.levels}
    assert [level for level, state in states.items() if state == "outlier"] == [12, 28]
    assert (states[3], states[32], states[8]) == ("not valid", "not sustained", "sustained")
    assert "consumer" in next(each.reasons for each in found.levels if each.parallelism == 3)
    assert found.unit == "bytes"
    assert found.levels[0].rate == pytest.approx(1.65e12 / 23760, rel=1e-5)
    assert found.levels[0].lowest_rate == found.levels[0].rate
    assert found.sweep.knee == 8


def test_settings_beside_the_parallelism() -> None:
    """Where codecs vary, points are compared in rows, a line for each codec."""
    found = sweep_report(sweeps.live())
    assert found.unit == "rows"
    assert {level.series for level in found.levels} == {"--compression none", "--compression zstd"}
    assert [level.state for level in found.levels[:4]] == [
        *["sustained"] * 2,
        *["not sustained"] * 2,
    ]
    assert (found.levels[-1].state, found.levels[-1].reasons) == ("failed", "no room ")
    median = found.points[1].median
    assert median is not None
    assert median.costs.compress is None, "not measured, and not 0"
    assert found.recommended_options == "--parallelism 8 --compression none"
    assert isinstance(found.sweep, SweepDocument)
    assert found.sweep.whole_table is not None
    speed = sweeps.live().points[3].rows_per_second
    assert found.sweep.whole_table.seconds == pytest.approx(9e9 / speed)


def test_ceilings_in_the_unit_of_the_sweep() -> None:
    """Rows are compared with the source, bytes with the disk, and with the source's rows as bytes."""
    found = {
        made.__name__: [each.rate for each in sweep_report(made(), sweeps.ceilings()).ceilings]
        for made in (sweeps.live, sweeps.replay, sweeps.analysed)
    }
    assert found == {"live": [1.9e6], "replay": [4.1e8], "analysed": [4.1e8, 1.9e6 * 137]}


@pytest.mark.long(OTHER_ROUTES)
def test_unsteady_points_and_settings() -> None:
    """A point that could not be measured well is named with its spread; so is how it was done."""
    document = sweeps.analysed()
    points = list(document.points)
    points[2] = replace(points[2], state="unsteady", spread=0.413)
    page = Page(page_of(sweep_report(replace(document, points=tuple(points)))))
    assert ("id", "unsteady") in page.attributes
    shown = {each.key: each.shown for each in page.figures}
    assert shown["points.2.point.spread"] == "41.3%"
    assert shown["sweep.options.repeats"] == "3"
    steady = Page(page_of(sweep_report(sweeps.replay())))
    assert not {("id", "unsteady"), ("id", "settings")} & set(steady.attributes)


def test_timeline_of_the_recommended_point() -> None:
    """The bars show its median measurement."""
    found = sweep_report(sweeps.analysed())
    assert found.shown_point == "--parallelism 8"
    assert len(found.bars) == 48
    assert {bar.worker for bar in found.bars} == set(range(8))


@pytest.mark.parametrize("made", [sweeps.replay, sweeps.live, sweeps.analysed])
def test_a_page_is_made_of_what_a_sweep_printed(made: Any) -> None:
    """The JSON of a sweep is read as it was printed."""
    printed = json.loads(msgspec.json.encode(made()))
    assert is_sweep(printed)
    assert sweep_of(printed, "sweep.json") == made()


def test_another_document_is_refused() -> None:
    """A value that no sweep wrote has one error, with its place."""
    printed = json.loads(msgspec.json.encode(sweeps.replay()))
    printed["levels"][0]["seconds"] = "fast"
    with pytest.raises(ConfigError, match=r"sweep.json is not what .*\$.levels\[0\].seconds"):
        sweep_of(printed, "sweep.json")
    with pytest.raises(ConfigError, match="missing required field"):
        sweep_of({"levels": []}, "sweep.json")
