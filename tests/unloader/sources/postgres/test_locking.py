"""Many tables locked for one snapshot, and a snapshot that another parent enters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace
from processes.command import wait_for

from partition_planner.model import WholeTable
from unloader.errors import SnapshotGone, SourceError, failure_of
from unloader.model import Extract, OutputOptions, Request, Selection, Snapshot, SourceSpec
from unloader.placement.seating import seat_request
from unloader.request.names import parse_table
from unloader.resolve.choosing import ChosenTable, chosen_table
from unloader.resolve.resolution import prepared_table
from unloader.selection.choice import TableChoice, choose, parse_pattern
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.source import PostgresSource
from unloader.sources.questions import describe_tables, hold_tables, project
from unloader.sources.readings import OutputNeeds
from writers.model import TextFormat

SIZES = {"one": 1, 'Quo"ted': 20, "dropped": 30, "truncated": 40, "locked": 50, "none": 0}
MAKE = "CREATE SCHEMA s; CREATE TABLE s.parted (k integer) PARTITION BY LIST (k);" + "".join(
    f'CREATE TABLE s."{name.replace(chr(34), chr(34) * 2)}" AS '
    f"SELECT g AS k FROM generate_series(1, {rows}) g;"
    for name, rows in SIZES.items()
)
PARTED = (
    "CREATE TABLE s.p1 PARTITION OF s.parted FOR VALUES IN (1);"
    "CREATE TABLE s.p2 PARTITION OF s.parted DEFAULT;"
    "INSERT INTO s.parted SELECT g FROM generate_series(1, 7) g;"
)
WAIT_SECONDS = 0.4
SNAPSHOT = Snapshot(kind="exported-snapshot", value="that of the session", taken_at="")


@pytest.fixture
def url(postgres: Any) -> str:
    """A database of small tables."""
    made: str = postgres.database("holding")
    postgres.run(MAKE + PARTED, url=made)
    return made


@pytest.fixture
def spec(url: str) -> SourceSpec:
    """The database, whose locks are not waited for long."""
    known = SourceSpec(kind="postgresql", location=url)
    return replace(known, session=replace(known.session, lock_timeout_seconds=WAIT_SECONDS))


@pytest.fixture
def catalog(spec: SourceSpec) -> Iterator[PostgresCatalog]:
    """A session of the parent, at a snapshot."""
    with closing(PostgresSource().open_catalog(spec)) as catalog:
        catalog.snapshot("snapshot")
        yield catalog


def extracts(catalog: PostgresCatalog, spec: SourceSpec, names: tuple[str, ...]) -> list[Extract]:
    """Return what a run would read of each table."""
    found = []
    for name in names:
        quoted = '"' + name.replace('"', '""') + '"'
        request = Request(
            source=spec,
            selection=Selection(table=parse_table(f"s.{quoted}")),
            output=OutputOptions(destination="/nowhere", format=TextFormat()),
        )
        table = chosen_table(catalog, request.selection)
        ready = prepared_table(
            ChosenTable(entry=0, request=request, table=table),
            catalog=catalog,
            source=spec,
            snapshot=SNAPSHOT,
            seats=seat_request(request),
        )
        found.append(ready.extract)
    return found


def held(catalog: PostgresCatalog, wanted: list[Extract]) -> dict[str, SourceError | None]:
    """Hold tables; return what keeps each from being held."""
    errors = hold_tables(catalog, [(each, (WholeTable(),)) for each in wanted])
    return {each.table.name: error for each, error in zip(wanted, errors, strict=True)}


def test_tables_in_the_way_spoil_no_other(
    catalog: PostgresCatalog, spec: SourceSpec, postgres: Any
) -> None:
    """Tables truncated or dropped since the snapshot are reported; the rest is held and counted."""
    wanted = extracts(catalog, spec, tuple(SIZES))
    postgres.run("TRUNCATE s.truncated; DROP TABLE s.dropped", url=spec.location)
    errors = held(catalog, wanted)
    assert {name for name, error in errors.items() if error} == {"truncated", "dropped"}
    assert isinstance(errors["truncated"], SnapshotGone)
    good = [each for each in wanted if not errors[each.table.name]]
    expected = tuple(SIZES[each.table.name] for each in good)
    assert catalog.count_tables(good) == expected


def test_a_lock_is_waited_for_by_its_own_table_alone(
    catalog: PostgresCatalog, spec: SourceSpec
) -> None:
    """Anyone who has one table for himself prevents the lock of that table alone."""
    wanted = extracts(catalog, spec, ("one", "locked", "none"))
    other = Session(spec)
    with closing(other):
        other.execute("SET default_transaction_read_only = off")
        other.execute("BEGIN; LOCK TABLE s.locked IN ACCESS EXCLUSIVE MODE")
        errors = held(catalog, wanted)
        assert errors["one"] is None
        assert errors["none"] is None
        assert errors["locked"] is not None
        assert "55P03" in errors["locked"].message
        other.execute("ROLLBACK")
        assert held(catalog, wanted)["locked"] is None


def test_what_is_below_a_table_is_held_with_it(spec: SourceSpec, postgres: Any) -> None:
    """Partitions and children as well as the table that they are read through."""
    family = ("parent", "child", "parted", "p1", "p2", "one")
    made = "CREATE TABLE s.parent (k integer); CREATE TABLE s.child () INHERITS (s.parent)"
    postgres.run(made, url=spec.location)
    with closing(PostgresSource().open_catalog(spec)) as later:
        later.snapshot("snapshot")
        wanted = extracts(later, spec, ("parent", "parted", "one"))
        assert set(held(later, wanted).values()) == {None}
        locks = "SELECT relation::regclass::text AS name FROM pg_locks WHERE pid = pg_backend_pid()"
        found = {row.name for row in later._session.rows(locks)}
    assert {f"s.{name}" for name in family} <= found


def test_tables_are_listed_and_described_beside_one_that_is_locked(
    catalog: PostgresCatalog, spec: SourceSpec
) -> None:
    """Its size is an older one; no one waits for it."""
    other = Session(spec)
    with closing(other):
        other.execute("SET default_transaction_read_only = off")
        other.execute("BEGIN; LOCK TABLE s.locked IN ACCESS EXCLUSIVE MODE")
        listing = catalog.list_tables()
        wanted = TableChoice(tables=(parse_pattern("s.*"),))
        described = describe_tables(catalog, choose(wanted, listing))
        assert described.problems == ()
        assert {table.name for table in described.tables} >= set(SIZES)


@pytest.fixture
def exported_url(postgres: Any) -> str:
    """A database with a table of five rows."""
    found: str = postgres.database("exported")
    postgres.run("CREATE TABLE t AS SELECT g AS k FROM generate_series(1, 5) g", url=found)
    return found


@pytest.fixture
def first(exported_url: str) -> Iterator[PostgresCatalog]:
    """The parent that took the snapshot."""
    opened = PostgresSource().open_catalog(SourceSpec(kind="postgresql", location=exported_url))
    yield opened
    opened.close()


def at(exported_url: str, snapshot: Snapshot) -> SourceSpec:
    """Return the source as a later parent opens it."""
    spec = SourceSpec(kind="postgresql", location=exported_url)
    found = PostgresSource().at_snapshot(spec, snapshot.kind, snapshot.value)
    assert found is not None
    return found


def counted(catalog: PostgresCatalog, snapshot: Snapshot) -> int:
    """Return how many rows the table has at the snapshot of a catalog."""
    table = catalog.describe(parse_table("t"))
    extract = Extract(
        source=SourceSpec(kind="postgresql", location=""),
        snapshot=snapshot,
        table=table,
        query=None,
        where=None,
        projection=project(catalog, table, None, (OutputNeeds(text=TextFormat()),)),
    )
    return catalog.count(extract)


def test_another_parent_reads_the_same_state(
    postgres: Any, exported_url: str, first: PostgresCatalog
) -> None:
    """Rows that came and went since do not count, and the snapshot has the same kind and value."""
    taken = first.snapshot("snapshot")
    postgres.run("DELETE FROM t WHERE k < 4; INSERT INTO t VALUES (9)", url=exported_url)
    with closing(PostgresSource().open_catalog(at(exported_url, taken))) as second:
        entered = second.snapshot("snapshot")
        assert (entered.kind, entered.value) == (taken.kind, taken.value)
        assert counted(second, entered) == 5
        second.check_snapshot()
    with closing(
        PostgresSource().open_reader(SourceSpec(kind="postgresql", location=exported_url), taken)
    ):
        pass


def test_a_snapshot_that_nobody_holds_is_gone(
    postgres: Any, exported_url: str, first: PostgresCatalog
) -> None:
    """Parents and workers report it with the next step, and no attempt is repeated."""
    taken = first.snapshot("snapshot")
    spec = at(exported_url, taken)
    first.close()
    # The server's process of that session ends after us, and the snapshot with it.
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'exported'"
    wait_for(lambda: postgres.run(sessions) == "0", "the end of the session")
    with closing(PostgresSource().open_catalog(spec)) as second:
        with pytest.raises(SnapshotGone, match="cannot be imported") as caught:
            second.snapshot("snapshot")
        assert caught.value.hint
    with pytest.raises(SnapshotGone, match="cannot be imported") as caught:
        PostgresSource().open_reader(SourceSpec(kind="postgresql", location=exported_url), taken)
    failure = failure_of(caught.value)
    assert (failure.error, failure.retryable) == ("SnapshotGone", False)


def test_a_number_that_was_given_out_again_is_another_snapshot(
    postgres: Any, exported_url: str, first: PostgresCatalog
) -> None:
    """A restarted server numbers snapshots again: one that sees something else is not entered."""
    taken = first.snapshot("snapshot")
    number, _, state = taken.value.partition(" state=")
    other = replace(taken, value=f"{number} state={state[::-1]}")
    assert other != taken
    with (
        closing(PostgresSource().open_catalog(at(exported_url, other))) as second,
        pytest.raises(SnapshotGone, match="now a different snapshot"),
    ):
        second.snapshot("snapshot")
    with pytest.raises(SnapshotGone, match="now a different snapshot"):
        PostgresSource().open_reader(SourceSpec(kind="postgresql", location=exported_url), other)


def test_what_is_no_exported_snapshot_leads_nowhere(exported_url: str) -> None:
    """A value of another kind, or one without its visible transactions, is not tried."""
    spec = SourceSpec(kind="postgresql", location=exported_url)
    assert PostgresSource().at_snapshot(spec, "scn", "4711") is None
    assert PostgresSource().at_snapshot(spec, "exported-snapshot", "00000003-0000001B-1") is None
