"""The page of a sweep: curve, knee, ceilings, and what each point cost."""

from __future__ import annotations

import json

import pytest
from long_tests import OTHER_ROUTES
from reports import sweeps
from reports.manifests import HOSTILE
from reports.reading import Page, agrees, at

from unloader.errors import ConfigError
from unloader.report.of_sweep import is_sweep, sweep_report
from unloader.report.pages import page_of


@pytest.fixture(scope="module")
def hostile() -> Page:
    """The page of an analysed live sweep in which everything has a hostile name."""
    return Page(page_of(sweep_report(sweeps.analysed(HOSTILE))))


@pytest.mark.long(OTHER_ROUTES)
def test_every_figure_is_that_of_the_json(hostile: Page) -> None:
    """What the page shows is what its JSON says, to the digits that are shown."""
    document = hostile.document
    assert [each for each in hostile.figures if not agrees(each, at(document, each.key))] == []
    keys = {each.key for each in hostile.figures}
    assert {"knee.parallelism", "levels.3.rate", "points.0.fetch", "ceilings.0.rate"} < keys


def test_hostile_names_are_text(hostile: Page) -> None:
    """A name makes no element and ends none, wherever it stands."""
    assert hostile.tags.count("script") == 1
    assert not {"img", "iframe", "object"} & set(hostile.tags)
    assert not [each for each in hostile.attributes if each[0].startswith("on")]
    assert HOSTILE in hostile.document["subject"]


def test_curve_of_published_points() -> None:
    """Levels that do not count are told with their reasons; the fit passes between the others."""
    found = sweep_report(sweeps.replay())
    states = {level.parallelism: level.state for level in found.levels}
    assert [level for level, state in states.items() if state == "outlier"] == [12, 28]
    assert (states[3], states[32], states[8]) == ("not valid", "not sustained", "sustained")
    assert "consumer" in next(each.reasons for each in found.levels if each.parallelism == 3)
    assert found.unit == "bytes"
    assert found.levels[0].rate == pytest.approx(1.65e12 / 23760, rel=1e-5)
    assert found.levels[0].lowest_rate == pytest.approx(1.65e12 / 23760 / 1.03, rel=1e-5)
    assert (found.curve[0].parallelism, found.curve[-1].parallelism) == (1, 32)
    assert found.curve[-1].seconds == pytest.approx(47_000 * (1 + 0.045 * 31) / 32, rel=1e-5)
    assert found.knee is not None
    assert (found.knee.parallelism, found.knee.low, found.knee.high) == (8.4, 7.1, 9.6)
    last = found.predictions[-1]
    assert (last.seconds, last.rate, last.reason) == (None, None, "too far beyond the levels ")
    assert (last.low, last.lowest_rate) == (None, None), "no interval of what is not predicted"


def test_what_is_doubtful_is_said_beside_the_recommendation() -> None:
    """Figures in bold do not say more than the text below them; a law that fails is not shown."""
    document = sweeps.replay()
    assert "doubtful" not in page_of(sweep_report(document))
    document["doubts"] = ["2 of 3 levels are unsteady"]
    document["model"]["describes_levels"] = False
    page = page_of(sweep_report(document))
    assert "<dt>recommended, doubtful</dt>" in page
    assert "<strong>Doubtful:</strong> 2 of 3 levels are unsteady" in page
    assert "<dt>law</dt>" not in page


def test_nobody_knows_whether_it_can_be_sustained() -> None:
    """Where no CPU was measured a level is valid, and is not said to be sustained."""
    document = sweeps.replay()
    for level in document["levels"]:
        level.update(sustained=None)
    found = sweep_report(document)
    assert {level.state for level in found.levels} == {"valid", "not valid", "outlier"}
    page = page_of(found)
    assert "<strong>8 workers" not in page
    assert "<strong>12 workers, outlier</strong>" in page


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
    """Rows are held against the source, bytes against the disk."""
    rows = sweep_report(sweeps.analysed())
    assert [(each.what, each.rate) for each in rows.ceilings] == [
        ("source, rows thrown away", 1.9e6)
    ]
    measured = {"disks": [{"bytes_per_second": 3e8}, {"bytes_per_second": 4e8}]}
    whole = sweep_report(sweeps.replay(), measured)
    assert [each.rate for each in whole.ceilings] == [4e8]


def test_a_ceiling_far_above_is_told_and_not_drawn() -> None:
    """A line at a multiple of the fastest point would press the curve flat."""
    measured = {"disks": [{"bytes_per_second": 5e9}], "source": {"levels": []}}
    page = Page(page_of(sweep_report(sweeps.replay(), measured)))
    told = [value for _, value in page.attributes if value.startswith("Speed by parallelism. ")]
    assert len(told) == 2
    assert all(
        "Too far above the chart to be drawn: disk, sequential writes" in each for each in told
    )
    assert {each.shown for each in page.figures if each.key == "ceilings.0.rate"} == {
        "5,000.0 MB/s"
    }


def test_the_source_as_a_ceiling_of_bytes() -> None:
    """Rows of the source are held against files by the bytes of a row in these."""
    document = sweeps.analysed()
    document["analysis"]["work"] = {"unit": "bytes", "amount": 50e6 * 137}
    found = sweep_report(document)
    assert [(each.what, each.rate) for each in found.ceilings] == [
        ("disk, sequential writes", 4.1e8),
        ("source, rows thrown away", 1.9e6 * 137),
    ]


@pytest.mark.long(OTHER_ROUTES)
def test_unsteady_points_and_settings() -> None:
    """A point that could not be measured well is named with its spread; so is how it was done."""
    document = sweeps.analysed()
    document["points"][2].update(state="unsteady", spread=0.413)
    page = Page(page_of(sweep_report(document)))
    assert ("id", "unsteady") in page.attributes
    shown = {each.key: each.shown for each in page.figures}
    assert shown["points.2.spread"] == "41.3%"
    settings = [(each["name"], each["value"]) for each in page.document["settings"]]
    assert settings == [("measurements of a point", "3")]
    steady = Page(page_of(sweep_report(sweeps.replay())))
    assert not {("id", "unsteady"), ("id", "settings")} & set(steady.attributes)


def test_timeline_of_the_recommended_point() -> None:
    """The bars are those of its median measurement."""
    found = sweep_report(sweeps.analysed())
    assert found.shown_point == "--parallelism 8"
    assert len(found.bars) == 48
    assert {bar.worker for bar in found.bars} == set(range(8))
    assert {each.node for each in found.loads} == {"0", "1"}


@pytest.mark.parametrize(
    "document",
    [
        {"levels": []},
        {"points": []},
        {"levels": None, "points": 3},
    ],
)
def test_nothing_to_show(document: dict[str, object]) -> None:
    """A sweep without a point has no page."""
    assert is_sweep(document)
    with pytest.raises(ConfigError, match="no points"):
        sweep_report(document)


def test_what_is_not_as_expected_is_unknown() -> None:
    """Values of other types are taken for unknown, and figures of law that is not known too."""
    document = sweeps.replay()
    document["levels"][0].update(seconds="fast", load=[], reasons=None)
    document["model"]["name"] = "another"
    document["knee_interval"] = None
    found = sweep_report(json.loads(json.dumps(document)))
    assert (found.levels[0].rate, found.levels[0].cpu) == (None, None)
    assert (found.curve, found.knee) == ((), None)
    assert "svg" in Page(page_of(found)).tags


def test_runs_an_hour_where_nothing_else_is_known() -> None:
    """Points that tell neither bytes nor rows are shown as runs an hour."""
    document = sweeps.replay()
    document["work"] = {"unit": "table", "amount": 1.0}
    found = sweep_report(document)
    assert found.unit == "runs"
    assert found.levels[-1].rate == pytest.approx(3600 / 3497, rel=1e-5)
