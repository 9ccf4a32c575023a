"""Many tables of PostgreSQL held and counted for one snapshot, some of them locked or changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from partition_planner.model import WholeTable
from unloader.errors import SnapshotGone, SourceError
from unloader.model import Extract, OutputOptions, Request, Selection, Snapshot, SourceSpec
from unloader.placement.seating import seat_request
from unloader.request.names import parse_table
from unloader.resolve.choosing import ChosenTable, chosen_table
from unloader.resolve.resolution import prepared_table
from unloader.selection.choice import TableChoice, choose
from unloader.selection.patterns import parse_pattern
from unloader.sources.many_tables import (
    count_tables,
    describe_tables,
    hold_tables,
    list_tables,
)
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.source import PostgresSource
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
    """One truncated and one dropped since the snapshot are told; the rest is held and counted."""
    wanted = extracts(catalog, spec, tuple(SIZES))
    postgres.run("TRUNCATE s.truncated; DROP TABLE s.dropped", url=spec.location)
    errors = held(catalog, wanted)
    assert {name for name, error in errors.items() if error} == {"truncated", "dropped"}
    assert isinstance(errors["truncated"], SnapshotGone)
    good = [each for each in wanted if not errors[each.table.name]]
    expected = tuple(SIZES[each.table.name] for each in good)
    assert count_tables(catalog, good) == expected


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
        listing = list_tables(catalog)
        wanted = TableChoice(tables=(parse_pattern("s.*"),))
        described = describe_tables(catalog, choose(wanted, listing))
        assert described.problems == ()
        assert {table.name for table in described.tables} >= set(SIZES)
