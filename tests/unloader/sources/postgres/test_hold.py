"""A run of PostgreSQL locks what it reads: TRUNCATE and ALTER TABLE go past every snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from partition_planner.model import PlanLimits
from partition_planner.planner import plan
from unloader.errors import SourceError, TransientSourceError
from unloader.model import Extract, NamePart, Selection, SourceSpec, TableName, Target
from unloader.preparation import chosen_table
from unloader.sources.postgres.session import CopyDialect, Session
from unloader.sources.postgres.source import PostgresCatalog, PostgresSource
from writers.model import TextFormat

WAIT = "SET lock_timeout = '100ms';"


@pytest.fixture
def url(postgres: Any) -> str:
    """A database with a partitioned table, one with children, a plain one and views."""
    found: str = postgres.database("hold")
    postgres.run(
        "CREATE TABLE parts (k int, v int) PARTITION BY LIST (k);"
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);"
        "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2) PARTITION BY LIST (v);"
        "CREATE TABLE parts_2_1 PARTITION OF parts_2 DEFAULT;"
        "INSERT INTO parts VALUES (1, 1), (2, 2); CREATE TABLE plain AS SELECT 1 AS v;"
        "CREATE TABLE other AS SELECT 1 AS v;"
        "CREATE TABLE parent (v int); CREATE TABLE child () INHERITS (parent);"
        "INSERT INTO child VALUES (1); CREATE VIEW seen AS SELECT * FROM plain;"
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM plain",
        url=found,
    )
    return found


@pytest.fixture
def catalog(url: str) -> Any:
    """The parent's session of a run."""
    opened = PostgresSource().open_catalog(SourceSpec(kind="postgresql", location=url))
    yield opened
    opened.close()


def begin(
    catalog: PostgresCatalog, name: str | None, url: str, meanwhile: Callable[[], object]
) -> None:
    """Do what a run does up to its first unit; `meanwhile` comes right after the snapshot."""
    snapshot = catalog.snapshot("snapshot")
    meanwhile()
    query = "SELECT * FROM parts" if name is None else None
    table_name = None if name is None else TableName(schema=None, name=NamePart(text=name))
    table = chosen_table(catalog, Selection(table=table_name, query=query))
    projection = catalog.project(table, query, Target(format="csv", text=TextFormat()))
    extract = Extract(
        source=SourceSpec(kind="postgresql", location=url),
        snapshot=snapshot,
        table=replace(table, partitions=()),
        query=query,
        where=None,
        projection=projection,
    )
    catalog.hold(extract, plan(table, PlanLimits(parallelism=2)).units)


def refused(postgres: Any, url: str, statement: str) -> bool:
    """Return whether a statement of somebody else has to wait."""
    try:
        postgres.run(WAIT + statement, url=url)
    except AssertionError as error:
        return "lock timeout" in str(error)
    return False


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("parts", "TRUNCATE parts_1"),
        ("parts", "TRUNCATE parts_2_1"),
        ("parts", "DROP TABLE parts_1"),
        ("parts_2", "TRUNCATE parts_2_1"),
        (None, "TRUNCATE parts_1"),
        ("plain", "ALTER TABLE plain ALTER v TYPE text"),
        ("parent", "TRUNCATE child"),
        ("seen", "TRUNCATE plain"),
        ("kept", "REFRESH MATERIALIZED VIEW kept"),
    ],
)
def test_what_a_snapshot_does_not_cover_waits(
    postgres: Any, catalog: PostgresCatalog, url: str, name: str | None, statement: str
) -> None:
    """Before any worker reads, no partition can be emptied, dropped or written anew."""
    begin(catalog, name, url, lambda: None)
    assert refused(postgres, url, statement)
    assert not refused(postgres, url, "INSERT INTO plain VALUES (2)")
    catalog.close()
    assert not refused(postgres, url, statement)


@pytest.mark.parametrize(
    ("name", "statement", "changed"),
    [
        ("parts", "TRUNCATE parts_2_1", "parts_2_1"),
        ("plain", "TRUNCATE plain", "plain"),
        ("other", "ALTER TABLE other ALTER v TYPE bigint", "other"),
        ("parent", "TRUNCATE child", "child"),
        ("kept", "REFRESH MATERIALIZED VIEW kept", "kept"),
    ],
)
def test_what_happened_since_the_snapshot_is_told(
    postgres: Any, catalog: PostgresCatalog, url: str, name: str, statement: str, changed: str
) -> None:
    """Rows that went between the snapshot and the lock end the run: a count would miss them, too."""
    with pytest.raises(SourceError, match=f"{changed} was truncated or written anew"):
        begin(catalog, name, url, lambda: postgres.run(statement, url=url))


def test_ordinary_changes_are_the_snapshots_business(
    postgres: Any, catalog: PostgresCatalog, url: str
) -> None:
    """Rows that come and go, vacuuming and a new index do not disturb a run."""
    changes = "INSERT INTO plain VALUES (3); DELETE FROM plain; CREATE INDEX ON plain (v);"
    begin(catalog, "plain", url, lambda: postgres.run(changes, url=url))
    assert not refused(postgres, url, "VACUUM plain")


def test_nobody_waits_for_ever(url: str) -> None:
    """A lock that is not to be had is an error that a retry may mend, and says who is in the way."""
    session = Session(SourceSpec(kind="postgresql", location=url))
    assert session.value("SHOW lock_timeout") == "30s"
    session.execute("SET lock_timeout = '50ms'")
    other = Session(SourceSpec(kind="postgresql", location=url))
    other.execute("BEGIN; LOCK TABLE plain")
    with pytest.raises(TransientSourceError, match=r"55P03.*no other session"):
        list(session.copy("SELECT v FROM plain", CopyDialect(), 1024))
    other.close()
    session.close()
