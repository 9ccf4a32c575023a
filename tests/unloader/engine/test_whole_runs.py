"""Whole runs of the engine over a source: every row once after any death, and refusals."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import duckdb
import psutil
import pytest
from msgspec.structs import replace
from processes import program

from unloader import api
from unloader.errors import ConfigError
from unloader.events import Event, UnitFinished
from unloader.model import OutputOptions, Request, RetryOptions, SeatOptions, Selection, SourceSpec
from unloader.request.names import parse_table
from writers.model import TextFormat


@pytest.fixture
def job(tmp_path: Path) -> Request:
    """A job over forty partitions of a DuckDB file with three workers."""
    with closing(duckdb.connect(str(tmp_path / "t.db"))) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(4000)")
        connection.execute(
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, 't' AS table_name,"
            " 'p' || range AS partition_name, range AS position, range * 100 AS first_rowid,"
            " range * 100 + 99 AS last_rowid FROM range(40)"
        )
    return Request(
        source=SourceSpec(kind="duckdb", location=f"duckdb://{tmp_path}/t.db"),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(destination=str(tmp_path / "out"), format=TextFormat(header=False)),
        parallelism=3,
        split="partition",
        seats=SeatOptions(numa="off"),
    )


def workers() -> list[psutil.Process]:
    """Return the worker processes of a run in this process."""
    return [each for each in program.below() if program.reads_units(each)]


def test_a_run_survives_the_death_of_its_workers(job: Request) -> None:
    """Workers killed at any point of a run cost attempts and not rows."""
    killed: list[int] = []

    def kill(event: Event) -> None:
        if isinstance(event, UnitFinished) and len(killed) < 3:
            # One that is just being started is seen at a later unit.
            for child in workers():
                if child.pid not in killed:
                    child.kill()
                    killed.append(child.pid)
                    break

    manifest = api.unload(replace(job, retry=RetryOptions(delay_seconds=0.01)), observe=kill)
    assert len(killed) == 3
    assert manifest["totals"]["rows"] == 4000
    files = sorted(Path(job.output.destination).glob("*.csv"))
    assert [int(line) for path in files for line in path.read_text().split()] == [*range(4000)]


def test_a_missing_driver_is_named_with_the_command_that_brings_it(
    job: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the driver a run ends as a configuration error and leaves no directory."""
    for name in ("catalog", "session", "libpq.connection"):
        monkeypatch.delitem(sys.modules, f"unloader.sources.postgres.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    source = SourceSpec(kind="postgresql", location="postgresql://nobody@localhost/none")
    with pytest.raises(ConfigError, match=r"'psycopg' is not installed.*unloader\[postgres\]"):
        api.unload(replace(job, source=source))
    assert not Path(job.output.destination).exists()
