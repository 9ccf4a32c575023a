"""A run of PostgreSQL locks its tables: TRUNCATE and ALTER TABLE go past every snapshot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from msgspec.structs import replace
from postgres.gates import PASSING, closed, wait_at
from processes import command

from partition_planner.model import PlanLimits
from partition_planner.planner import plan
from unloader.errors import SnapshotGone, SourceError, TransientSourceError
from unloader.model import Extract, NamePart, Selection, SessionOptions, SourceSpec, TableName
from unloader.resolve.choosing import chosen_table
from unloader.sources.base import unit_text
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.source import PostgresSource
from unloader.sources.postgres.statement import CopyDialect
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds
from writers.model import TextFormat

WAIT = "SET lock_timeout = '100ms';"
LONG_WAIT = "SET lock_timeout = '180s';"


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
    catalog: PostgresCatalog,
    name: str | None,
    url: str,
    meanwhile: Callable[[], object],
    later: Callable[[], object] = lambda: None,
    query: str = "SELECT * FROM parts",
    where: str | None = None,
) -> Extract:
    """Do what a run does up to its first unit.

    `meanwhile` comes right after the snapshot, `later` when the table has been described.
    """
    snapshot = catalog.snapshot("snapshot")
    meanwhile()
    asked = query if name is None else None
    table_name = None if name is None else TableName(schema=None, name=NamePart(text=name))
    table = chosen_table(catalog, Selection(table=table_name, query=asked))
    later()
    projection = project(catalog, table, asked, (OutputNeeds(text=TextFormat()),))
    extract = Extract(
        source=SourceSpec(kind="postgresql", location=url),
        snapshot=snapshot,
        table=replace(table, partitions=()),
        query=asked,
        where=where,
        projection=projection,
    )
    catalog.check_where(extract)
    catalog.hold(extract, plan(table, PlanLimits(parallelism=2)).selectors)
    return extract


def refused(postgres: Any, url: str, statement: str, wait: str = WAIT) -> bool:
    try:
        postgres.run(wait + statement, url=url)
    except AssertionError as error:
        return "lock timeout" in str(error)
    return False


@pytest.mark.long(OTHER_ROUTES)
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
    """Before any worker reads, no partition can be emptied, dropped or written again."""
    begin(catalog, name, url, lambda: None)
    assert refused(postgres, url, statement)
    assert not refused(postgres, url, "INSERT INTO plain VALUES (2)", LONG_WAIT)
    catalog.close()
    # A server takes a moment to see that a session has ended.
    assert not refused(postgres, url, statement, LONG_WAIT)


@pytest.mark.parametrize(
    ("name", "statement", "changed"),
    [
        ("parts", "TRUNCATE parts_2_1", "parts_2_1"),
        ("plain", "TRUNCATE plain", "plain"),
        ("other", "ALTER TABLE other ALTER v TYPE bigint", "other"),
        ("parent", "TRUNCATE child", "child"),
        ("kept", "REFRESH MATERIALIZED VIEW kept", "kept"),
        ("seen", "TRUNCATE plain", "plain"),
        (None, "TRUNCATE parts_1", "parts_1"),
    ],
)
def test_what_happened_since_the_snapshot_is_told(
    postgres: Any,
    catalog: PostgresCatalog,
    url: str,
    name: str | None,
    statement: str,
    changed: str,
) -> None:
    """Rows that went between the snapshot and the lock end the run: a count would miss them, too."""
    with pytest.raises(SourceError, match=f"{changed} was truncated, rewritten"):
        begin(catalog, name, url, lambda: postgres.run(statement, url=url))


PLANNED_AWAY = (
    "SELECT o.v FROM other o LEFT JOIN parts p ON p.k = o.v",
    "SELECT v, (SELECT max(p.v) FROM parts p) AS most FROM other",
    "WITH p AS MATERIALIZED (SELECT k FROM parts) SELECT o.v FROM other o JOIN p ON p.k = o.v",
    "SELECT v FROM other UNION ALL SELECT k FROM parts",
    "SELECT v FROM other WHERE v IN (SELECT k FROM through)",
)
"""Queries that read a partitioned table in a join, a subquery, or through a view."""


@pytest.fixture
def joined(postgres: Any, url: str) -> str:
    """The same database with a view on the partitions, and one that joins them."""
    postgres.run(
        "CREATE VIEW through AS SELECT k FROM parts;"
        "CREATE VIEW beside AS SELECT v, (SELECT max(p.v) FROM parts p) AS most FROM other;",
        url=url,
    )
    return url


@pytest.mark.parametrize("query", PLANNED_AWAY)
def test_all_that_a_query_reads_is_locked_and_checked(
    postgres: Any, catalog: PostgresCatalog, joined: str, query: str
) -> None:
    """A TRUNCATE of a partition that a join reads ends the run before the lock, and waits after."""
    begin(catalog, None, joined, lambda: None, query=query)
    assert refused(postgres, joined, "TRUNCATE parts_1")
    catalog.close()
    other = PostgresSource().open_catalog(SourceSpec(kind="postgresql", location=joined))
    with pytest.raises(SourceError, match="parts_1 was truncated, rewritten"):
        begin(
            other, None, joined, lambda: postgres.run("TRUNCATE parts_1", url=joined), query=query
        )
    other.close()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("beside", None),
        ("other", "v IN (SELECT k FROM parts)"),
        ("parts", "EXISTS (TABLE parts_1)"),
    ],
)
def test_all_that_a_view_or_a_condition_reads_is_locked_and_checked(
    postgres: Any, catalog: PostgresCatalog, joined: str, name: str, where: str | None
) -> None:
    """The same goes for a column of a view that is a subquery, and for one in the condition."""
    begin(catalog, name, joined, lambda: None, where=where)
    assert refused(postgres, joined, "TRUNCATE parts_1")
    catalog.close()
    other = PostgresSource().open_catalog(SourceSpec(kind="postgresql", location=joined))
    with pytest.raises(SourceError, match="parts_1 was truncated, rewritten"):
        begin(
            other, name, joined, lambda: postgres.run("TRUNCATE parts_1", url=joined), where=where
        )
    other.close()


FUNCTIONS = r"""
CREATE SCHEMA apart; CREATE TABLE apart.hidden AS SELECT 1 AS v;
CREATE FUNCTION in_sql() RETURNS SETOF plain LANGUAGE sql AS 'SELECT * FROM plain';
CREATE FUNCTION parsed() RETURNS SETOF plain LANGUAGE sql BEGIN ATOMIC SELECT * FROM plain; END;
CREATE FUNCTION in_plpgsql() RETURNS SETOF plain LANGUAGE plpgsql AS
  'BEGIN RETURN QUERY SELECT p.v FROM "plain" AS p; END';
CREATE FUNCTION nested() RETURNS SETOF plain LANGUAGE plpgsql AS
  'BEGIN RETURN QUERY SELECT * FROM public.in_plpgsql (); END';
CREATE FUNCTION of_parts() RETURNS SETOF int LANGUAGE plpgsql AS
  'BEGIN RETURN QUERY SELECT k FROM parts; END';
CREATE FUNCTION with_path() RETURNS SETOF int LANGUAGE plpgsql SET search_path = apart AS
  'BEGIN RETURN QUERY SELECT v FROM hidden; END';
CREATE FUNCTION one(i int) RETURNS int LANGUAGE plpgsql STABLE AS
  'BEGIN RETURN (SELECT count(*) FROM plain WHERE v >= i); END';
CREATE FUNCTION built(name text) RETURNS SETOF plain LANGUAGE plpgsql AS
  'BEGIN RETURN QUERY EXECUTE ''TABLE pl'' || name; END';
CREATE OPERATOR @@@ (RIGHTARG = int, FUNCTION = one);
CREATE VIEW over_function AS SELECT * FROM nested();
CREATE VIEW over_view AS SELECT v + 1 AS v FROM over_function;
CREATE VIEW over_operator AS SELECT @@@ v AS v FROM other;
"""
"""Functions that read tables: as SQL in a string and parsed, by other functions, by an operator."""


@pytest.fixture
def calling(postgres: Any, url: str) -> str:
    """The same database with functions that read its tables."""
    postgres.run(FUNCTIONS, url=url)
    return url


@pytest.mark.parametrize(
    ("name", "text", "table"),
    [
        (None, "SELECT * FROM in_sql()", "public.plain"),
        (None, "SELECT * FROM parsed()", "public.plain"),
        (None, 'SELECT * FROM public."nested"()', "public.plain"),
        (None, "SELECT * FROM of_parts()", "public.parts_1"),
        (None, "SELECT * FROM with_path()", "apart.hidden"),
        ("other", "one(v) > 0", "public.plain"),
        ("over_view", None, "public.plain"),
        ("over_operator", None, "public.plain"),
    ],
)
def test_what_a_function_reads_is_checked_after_reading(
    postgres: Any,
    catalog: PostgresCatalog,
    calling: str,
    name: str | None,
    text: str | None,
    table: str,
) -> None:
    """The plan of a statement does not show what a function reads; its session has it locked."""
    asked = {} if text is None else {"query" if name is None else "where": text}
    extract = begin(catalog, name, calling, lambda: None, **asked)
    reader = PostgresSource().open_reader(extract.source, extract.snapshot)
    (unit,) = plan(extract.table, PlanLimits(parallelism=1, split="none")).units
    assert list(unit_text(reader, extract, unit, TextFormat()))
    assert refused(postgres, calling, f"TRUNCATE {table}")
    reader.close()
    postgres.run(f"{LONG_WAIT} TRUNCATE {table}", url=calling)
    if name != "over_operator":  # To count its rows, the server does not call the function.
        with pytest.raises(SnapshotGone, match=r"was truncated, rewritten"):
            catalog.count(extract)
    reader = PostgresSource().open_reader(extract.source, extract.snapshot)
    with pytest.raises(SnapshotGone, match="was truncated, rewritten"):
        list(unit_text(reader, extract, unit, TextFormat()))
    reader.close()


def test_what_a_function_finds_by_itself_is_checked(
    postgres: Any, calling: str, tmp_path: Path
) -> None:
    """A table that EXECUTE reads was emptied after the snapshot: the run ends, without files."""
    query = f"SELECT f.* FROM (SELECT {PASSING} AS t) AS g, LATERAL built('ain' || t) AS f"
    arguments = ("run", calling, "--query", query, "--to", str(tmp_path / "o"))
    with closed(postgres, calling) as gate:
        running = command.Running(*arguments, "--progress", "none")
        wait_at(gate, running)
        postgres.run("TRUNCATE plain; INSERT INTO plain VALUES (7)", url=calling)
        gate.open()
        status, _, log = running.finish()
    assert status == 4
    assert "public.plain was truncated, rewritten or replaced" in log
    assert not list((tmp_path / "o").glob("*.csv"))


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("plain", "DROP TABLE plain CASCADE; CREATE TABLE plain AS SELECT 9 AS v"),
        ("plain", "ALTER TABLE plain RENAME TO old; ALTER TABLE other RENAME TO plain"),
        ("parts", "DROP TABLE parts_1; CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1)"),
        (None, "DROP TABLE plain CASCADE; CREATE TABLE plain AS SELECT 9 AS v"),
        (None, "ALTER TABLE plain RENAME TO old; ALTER TABLE other RENAME TO plain"),
        (
            None,
            "CREATE SCHEMA s; ALTER TABLE plain SET SCHEMA s; ALTER TABLE other RENAME TO plain",
        ),
    ],
)
def test_another_table_under_the_name_is_told(
    postgres: Any, catalog: PostgresCatalog, url: str, name: str | None, statement: str
) -> None:
    """A table that was dropped and made again, or swapped for another, is not the one described."""
    query = 'SELECT p.v FROM plain p JOIN public."Odd.name" o ON o.v = p.v'
    postgres.run('CREATE TABLE "Odd.name" AS SELECT 1 AS v', url=url)

    def later() -> None:
        postgres.run(statement, url=url)

    def nothing() -> None:
        pass

    # The tables that a query names are locked from its description on.
    at_once, then = (later, nothing) if name is None else (nothing, later)
    with pytest.raises(SourceError, match=r"replaced after the snapshot was taken"):
        begin(catalog, name, url, at_once, then, query=query)


@pytest.mark.parametrize(
    ("name", "statement", "rows"),
    [
        ("parts", "ALTER TABLE parts ATTACH PARTITION more FOR VALUES IN (3)", 2),
        ("other", "ALTER TABLE heir INHERIT other", 1),
        ("parent", "ALTER TABLE heir INHERIT parent", 1),
        ("seen", "SELECT 1", 1),
    ],
)
def test_the_count_is_of_what_the_table_was(
    postgres: Any, catalog: PostgresCatalog, url: str, name: str, statement: str, rows: int
) -> None:
    """Partitions attached since the snapshot are not counted, though its rows are older."""
    postgres.run(
        "CREATE TABLE more (k int, v int); INSERT INTO more VALUES (3, 3);"
        "CREATE TABLE heir (v int); INSERT INTO heir VALUES (1), (2)",
        url=url,
    )
    extract = begin(catalog, name, url, lambda: None)
    postgres.run(statement, url=url)
    assert catalog.count(extract) == rows


def test_the_count_has_what_was_detached(postgres: Any, catalog: PostgresCatalog, url: str) -> None:
    """A partition that was detached since the snapshot was a part of the table then."""
    detach = "ALTER TABLE parts DETACH PARTITION parts_1"
    extract = begin(catalog, "parts", url, lambda: postgres.run(detach, url=url))
    assert catalog.count(extract) == 2


def test_ordinary_changes_are_the_snapshots_business(
    postgres: Any, catalog: PostgresCatalog, url: str
) -> None:
    """Rows that come and go, vacuuming and a new index do not disturb a run."""
    changes = "INSERT INTO plain VALUES (3); DELETE FROM plain; CREATE INDEX ON plain (v);"
    begin(catalog, "plain", url, lambda: postgres.run(changes, url=url))
    assert not refused(postgres, url, "VACUUM plain", LONG_WAIT)


def test_nobody_waits_for_ever(url: str) -> None:
    """A lock that is not to be had is an error that a retry may mend, and says who is in the way."""
    session = Session(SourceSpec(kind="postgresql", location=url))
    assert session.value("SHOW lock_timeout") == "30s"
    session.execute("SET lock_timeout = '50ms'")
    other = Session(SourceSpec(kind="postgresql", location=url))
    other.execute("BEGIN; LOCK TABLE public.plain")
    with pytest.raises(TransientSourceError, match=r"55P03.*after other sessions have released"):
        list(session.copied("SELECT v FROM plain", CopyDialect(), 1024))
    other.close()
    session.close()


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(("seconds", "wanted"), [("0.25", "250ms"), ("0", "1s")])
def test_the_wait_for_a_lock_is_an_option(
    postgres: Any, url: str, tmp_path: Path, seconds: str, wanted: str
) -> None:
    """An ALTER TABLE in progress ends the run after that long; 0 means the server's setting."""
    postgres.run("ALTER DATABASE hold SET lock_timeout = '1s'", url=url)
    session = SessionOptions(lock_timeout_seconds=float(seconds))
    with closing(Session(SourceSpec(kind="postgresql", location=url, session=session))) as ours:
        assert ours.value("SHOW lock_timeout") == wanted
    with closing(Session(SourceSpec(kind="postgresql", location=url))) as other:
        other.execute("BEGIN; LOCK TABLE public.plain")
        error = command.error_of(
            "run", url, "--table", "plain", "--to", str(tmp_path / "out"), "--lock-timeout",
            seconds, "--retries", "1", "--retry-delay", "0.1", "--progress", "none", status=4,
        )  # fmt: skip
    assert "lock timeout" in error
    assert "--lock-timeout" in error
