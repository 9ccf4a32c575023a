"""The page of a sweep: curve, knee, ceilings, and what each point cost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from long_tests import OTHER_ROUTES
from msgspec.structs import replace
from reports import sweeps
from reports.manifests import HOSTILE
from reports.reading import Page, agrees, at

from unloader.errors import ConfigError
from unloader.tuning.report_page import page_of
from unloader.tuning.sweep_document import is_sweep, sweep_of
from unloader.tuning.sweep_report import sweep_report


@pytest.fixture(scope="module")
def hostile() -> Page:
    """The page of an analysed live sweep in which everything has a hostile name."""
    return Page(page_of(sweep_report(sweeps.analysed(HOSTILE), sweeps.ceilings())))


@pytest.mark.long(OTHER_ROUTES)
def test_every_figure_is_that_of_the_json(hostile: Page) -> None:
    """The page shows the figures of its JSON, to the shown digits."""
    document = hostile.document
    assert [each for each in hostile.figures if not agrees(each, at(document, each.key))] == []
    keys = {each.key for each in hostile.figures}
    assert {"knee.parallelism", "levels.3.rate", "points.0.fetch", "ceilings.0.rate"} < keys


def test_levels_of_published_points() -> None:
    """Levels that do not count are shown with their reasons."""
    found = sweep_report(sweeps.replay())
    states = {level.parallelism: level.state for level in found.levels}
    assert [level for level, state in states.items() if state == "outlier"] == [12, 28]
    assert (states[3], states[32], states[8]) == ("not valid", "not sustained", "sustained")
    assert "consumer" in next(each.reasons for each in found.levels if each.parallelism == 3)
    assert found.unit == "bytes"
    assert found.levels[0].rate == pytest.approx(1.65e12 / 23760, rel=1e-5)
    assert found.levels[0].lowest_rate == pytest.approx(1.65e12 / 23760 / 1.03, rel=1e-5)
    assert (found.knee.parallelism, found.knee.low, found.knee.high) == (8, 7, 9)


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
    assert found.points[1].compress is None, "not measured, and not 0"
    assert found.points[1].database is None
    assert found.recommended_options == "--parallelism 4 --compression none"
    assert found.whole_table is not None
    assert found.whole_table.seconds == 9200


def test_ceilings_in_the_unit_of_the_sweep() -> None:
    """Rows are compared with the source, bytes with the disk, and with the source's rows as bytes."""
    analysed, ceilings = sweeps.analysed(), sweeps.ceilings()
    rows = sweep_report(analysed, ceilings)
    assert [(each.what, each.rate) for each in rows.ceilings] == [
        ("source, rows thrown away", 1.9e6)
    ]
    whole = sweep_report(sweeps.replay(), ceilings)
    assert [each.rate for each in whole.ceilings] == [4.1e8]
    work = replace(analysed.work, unit="bytes", amount=50e6 * 137)
    assert [
        each.rate for each in sweep_report(replace(analysed, work=work), ceilings).ceilings
    ] == [*(4.1e8, 1.9e6 * 137)]


@pytest.mark.long(OTHER_ROUTES)
def test_unsteady_points_and_settings() -> None:
    """A point that could not be measured well is named with its spread; so is how it was done."""
    document = sweeps.analysed()
    points = list(document.points)
    points[2] = replace(points[2], state="unsteady", spread=0.413)
    page = Page(page_of(sweep_report(replace(document, points=tuple(points)))))
    assert ("id", "unsteady") in page.attributes
    shown = {each.key: each.shown for each in page.figures}
    assert shown["points.2.spread"] == "41.3%"
    settings = {each["name"]: each["value"] for each in page.document["settings"]}
    assert settings["measurements of a point"] == "3"
    steady = Page(page_of(sweep_report(sweeps.replay())))
    assert not {("id", "unsteady"), ("id", "settings")} & set(steady.attributes)


def test_timeline_of_the_recommended_point() -> None:
    """The bars show its median measurement."""
    found = sweep_report(sweeps.analysed())
    assert found.shown_point == "--parallelism 8"
    assert len(found.bars) == 48
    assert {bar.worker for bar in found.bars} == set(range(8))
    assert {each.node for each in found.loads} == {"0", "1"}


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
