"""The events of a run over several tables, and how the displays show them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from several_tables import made, requests_of, unload

from unloader.cli.display.log import LogDisplay, ended_text, progress_text, tables_text
from unloader.errors import OutputFailed, PartialUnload
from unloader.events import Event, PhaseStarted, RunStarted, TableFinished, TableStaged
from unloader.model import SourceSpec, TableCounts, TablesOptions
from unloader.status.recording import Tally

SIZES = {"small": 10, "large": 5000, "middle": 100}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceSpec:
    """A DuckDB file of three tables, and a view that fails when its rows are read."""
    spec = made(tmp_path_factory.mktemp("source") / "s.db", SIZES)
    with duckdb.connect(spec.location) as connection:
        connection.execute(
            "CREATE VIEW broken AS SELECT CASE WHEN i < 9 THEN i ELSE error('no luck') END AS i "
            "FROM small"
        )
    return spec


def events_of(
    source: SourceSpec,
    to: Path,
    *names: str,
    publish: Literal["table", "run"] = "table",
    observe: Callable[[Event], None] = lambda event: None,
) -> list[Event]:
    """Unload tables, however that ends; return the events of the run."""
    told: list[Event] = []
    options = TablesOptions(destination="", publish=publish, on_failure="continue")

    def take(event: Event) -> None:
        told.append(event)
        observe(event)

    with suppress(PartialUnload):
        unload(requests_of(source, f"{to}/{{schema}}.{{table}}", names), options, take)
    return told


def test_each_table_is_told_once_with_how_many_are_done(source: SourceSpec, tmp_path: Path) -> None:
    """The open table is the largest of the remaining tables."""
    told = events_of(source, tmp_path, *SIZES)
    (started,) = [event for event in told if isinstance(event, RunStarted)]
    assert (started.tables, started.largest_table) == (3, "main.large")
    ended = [event for event in told if isinstance(event, TableFinished)]
    assert {event.table: event.rows for event in ended} == {
        f"main.{name}": rows for name, rows in SIZES.items()
    }
    assert [event.tables.done for event in ended] == [1, 2, 3]
    assert ended[-1].tables == TableCounts(total=3, done=3)


def test_a_table_that_fails_is_told_as_such(source: SourceSpec, tmp_path: Path) -> None:
    """So is an unreadable table that is left out; the others are counted as done."""
    told = events_of(source, tmp_path, "broken", "small", "nowhere")
    failed = {event.table: event for event in told if isinstance(event, TableFinished)}
    assert "no luck" in failed["main.broken"].error
    assert failed["main.broken"].directory == f"{tmp_path}/main.broken"
    assert failed["nowhere"].error
    assert not failed["nowhere"].directory
    last = [event for event in told if isinstance(event, TableFinished)][-1]
    assert (last.tables.total, last.tables.done, last.tables.failed) == (3, 1, 2)
    assert tables_text(last.tables) == "1/3 tables, 1 failed, 1 left out"


@pytest.mark.long(OTHER_ROUTES)
def test_tables_that_are_published_together_are_told_as_ready_before(
    source: SourceSpec, tmp_path: Path
) -> None:
    """A table without its final name is not reported as complete."""
    told = events_of(source, tmp_path, *SIZES, publish="run")
    kinds = [type(event) for event in told if isinstance(event, (TableStaged, TableFinished))]
    assert kinds == [TableStaged] * 3 + [TableFinished] * 3
    staged = [event.tables for event in told if isinstance(event, TableStaged)]
    assert [each.staged for each in staged] == [1, 2, 3]
    # Small tables may have come in one answer: then none is open at the first event.
    still_open = staged[0].largest_open and f", largest still open: {staged[0].largest_open}"
    assert tables_text(staged[0]) == f"0/3 tables, 1 ready to be published{still_open}"


@pytest.mark.parametrize(("tables", "lines"), [(3, 3), (51, 1)])
def test_a_log_of_hundreds_of_tables_tells_of_failures_alone(
    tables: int, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mail of cron is read for what went wrong."""
    display = LogDisplay(as_json=False, interval_seconds=1000)
    for number, error in enumerate(("", "", "no luck")):
        counts = TableCounts(total=tables, done=min(number + 1, 2), failed=number // 2)
        display(
            TableFinished(
                table=f"t{number}", rows=5, bytes=50, directory="d", error=error, tables=counts
            )
        )
    written = capsys.readouterr().err.splitlines()
    assert len(written) == lines
    assert written[-1].endswith("t2 has failed: no luck")
    assert tables == 51 or written[0].endswith("t0 is complete: 5 rows, 50 B; 1 of 3 tables")


@pytest.mark.long(OTHER_ROUTES)
def test_progress_and_end_tell_of_tables(source: SourceSpec, tmp_path: Path) -> None:
    """How many of how many, the whole in rows and bytes, and the largest that is open."""
    tally, seen = Tally(0.0), []

    def look(event: Event) -> None:
        tally.add(event, 0.0)
        if isinstance(event, TableFinished):
            seen.append(progress_text(tally.figures(1.0), "unloading"))

    events_of(source, tmp_path, *SIZES, observe=look)
    assert ", 1/3 tables" in seen[0]
    assert seen[-1].endswith("3/3 tables")
    assert ended_text(tally.figures(2.0), True).startswith("done: 3/3 tables, ")


@pytest.mark.long(OTHER_ROUTES)
def test_a_disk_without_room_ends_the_run(source: SourceSpec, tmp_path: Path) -> None:
    """Before a table is read that would fill it."""
    requests = requests_of(
        source, f"{tmp_path}/{{table}}", list(SIZES), min_free_bytes=1 << 62, pause_seconds=0
    )
    with pytest.raises(OutputFailed, match="free, and --min-free is"):
        unload(requests)


def test_what_lies_at_destinations_is_told_at_once(source: SourceSpec, tmp_path: Path) -> None:
    """Of all tables, before anything is read, and nothing is left behind."""
    (tmp_path / "main.large").write_text("a file")
    (tmp_path / "main.small").mkdir()
    (tmp_path / "main.small" / "foreign").touch()
    told: list[Event] = []
    requests = requests_of(source, f"{tmp_path}/{{schema}}.{{table}}", list(SIZES))
    with pytest.raises(OutputFailed) as caught:
        unload(requests, observe=told.append)
    assert "main.large" in str(caught.value)
    assert "main.small is not empty: it holds foreign" in str(caught.value)
    assert PhaseStarted(phase="unloading") not in told
    assert sorted(os.listdir(tmp_path)) == ["main.large", "main.small"]
