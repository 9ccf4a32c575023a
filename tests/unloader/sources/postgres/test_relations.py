"""All tables of a PostgreSQL database immediately: listed with rights, described together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from unloader.model import SourceSpec
from unloader.selection.choice import TableChoice, choose, parse_pattern
from unloader.selection.listing import (
    ListedTable,
    Listing,
    TableProblem,
    each_once,
    script,
    unreadable_columns,
)
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.libpq.connection import Connection
from unloader.sources.postgres.source import PostgresSource
from unloader.sources.questions import describe_tables
from unloader.sources.testing import check_many_tables

HOSTILE = ('a"b', "two\nlines", "dot.ted", "*", "[x]?", "Größe😀", "ORDERS", "orders", "'; --", " ")


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


MAKE = "\n".join(
    (
        'CREATE SCHEMA s; CREATE SCHEMA "S"; CREATE SCHEMA locked;',
        *(f"CREATE TABLE s.{quoted(name)} (k integer, v text);" for name in HOSTILE),
        # The server would vacuum it in the middle of a test, which changes its size.
        'CREATE TABLE "S".orders (k integer PRIMARY KEY, d numeric(12,2), w varchar(9) NOT NULL) '
        "WITH (autovacuum_enabled = false);",
        'INSERT INTO "S".orders SELECT g, g, g FROM generate_series(1, 2000) g; ANALYZE "S".orders;',
        "CREATE DOMAIN price AS numeric(10,2); CREATE DOMAIN cost AS price NOT NULL;",
        "CREATE TYPE pair AS (a integer, b cost[]);",
        "CREATE TABLE s.types (a cost, b pair, c timestamptz(3)[], gone integer, d bit(3),",
        "  e integer GENERATED ALWAYS AS (1) STORED); ALTER TABLE s.types DROP COLUMN gone;",
        "CREATE TABLE s.none ();",
        "CREATE TABLE s.parted (k integer, d date) PARTITION BY LIST (k);",
        "CREATE TABLE s.parted_1 PARTITION OF s.parted FOR VALUES IN (1) PARTITION BY RANGE (d);",
        "CREATE TABLE s.parted_1a PARTITION OF s.parted_1 FOR VALUES FROM ('2020-01-01')",
        "  TO ('2021-01-01');",
        "CREATE TABLE s.parted_1b PARTITION OF s.parted_1 DEFAULT;",
        "CREATE TABLE locked.parted_2 PARTITION OF s.parted FOR VALUES IN (2);",
        "INSERT INTO s.parted VALUES (1, '2020-02-02'), (1, '2022-02-02'), (2, NULL);",
        "CREATE TABLE s.empty_parted (k integer) PARTITION BY HASH (k);",
        "CREATE TABLE s.parent (k integer); CREATE TABLE s.child (x text) INHERITS (s.parent);",
        "CREATE VIEW s.seen AS SELECT * FROM s.types;",
        "CREATE MATERIALIZED VIEW s.filled AS SELECT 1 AS a;",
        "CREATE MATERIALIZED VIEW s.unfilled AS SELECT 1 AS a WITH NO DATA;",
        "CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw;",
        "CREATE FOREIGN TABLE s.abroad (k integer OPTIONS (column_name 'x')) SERVER far;",
        "CREATE TABLE locked.t (a integer);",
    )
)


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database with tables of every kind and hostile names."""
    found: str = postgres.database("many tables")
    try:
        postgres.run(MAKE, url=found)
    except AssertionError as error:
        if "postgres_fdw" not in str(error):
            raise
        found = postgres.database("many tables")
        without = "\n".join(line for line in MAKE.splitlines() if "SERVER far" not in line)
        postgres.run(without, url=found)
    return found


@pytest.fixture
def catalog(url: str) -> Iterator[PostgresCatalog]:
    """The owner's catalog."""
    with closing(PostgresSource().open_catalog(spec_of(url))) as opened:
        yield opened


def spec_of(url: str) -> SourceSpec:
    """Return the spec of a database."""
    return SourceSpec(kind="postgresql", location=url)


def by_name(listing: Listing) -> dict[str, ListedTable]:
    """Return the tables of a user by their labels."""
    return {table.label: table for table in listing.tables if not table.system}


def test_contract_of_many_tables(url: str) -> None:
    """Tables of every kind, with hostile names, are described together as each is alone."""
    listing = check_many_tables(PostgresSource(), spec_of(url), at_least=len(HOSTILE) + 9)
    found = by_name(listing)
    assert "s.parted_1a" not in found
    assert (found["s.parted"].kind, found["s.parted"].family) == ("partitioned table", "table")
    assert "S.orders" in found
    assert found["s.child"].part_of == ("s", "parent")
    assert found["s.seen"].family == "view"
    assert all(table.system for table in listing.tables if table.schema == "pg_catalog")
    (obstacle,) = found["s.unfilled"].obstacles
    assert obstacle.mend == ('REFRESH MATERIALIZED VIEW "s"."unfilled"',)


def test_the_number_of_statements_is_fixed(
    catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tables there are."""
    catalog.snapshot("snapshot")
    counted: list[str] = []
    for method in ("query", "execute"):
        run = getattr(Connection, method)

        def counting(
            connection: Connection, sql: str, *more: Any, run: Any = run, **as_: Any
        ) -> Any:
            counted.append(sql)
            return run(connection, sql, *more, **as_)

        monkeypatch.setattr(Connection, method, counting)
    listing = catalog.list_tables()
    assert len(counted) == 4
    wanted = TableChoice(tables=(parse_pattern("*.*"),))
    described = describe_tables(catalog, choose(wanted, listing))
    assert len(described.tables) > len(HOSTILE)
    # Two of them are a savepoint: an error of one table must not end the snapshot.
    assert len(counted) == 17


def test_missing_rights_are_told_with_their_grants(postgres: Any, url: str) -> None:
    """The script of all problems, run by the owner, leaves none."""
    user = 're"ader'
    postgres.run(
        f"DROP ROLE IF EXISTS {quoted(user)}; CREATE ROLE {quoted(user)} LOGIN;"
        f'GRANT USAGE ON SCHEMA s TO {quoted(user)}; GRANT SELECT ON s."*" TO {quoted(user)};'
        f"GRANT SELECT (a, e) ON s.types TO {quoted(user)};"
        f"CREATE TABLE s.guarded (k integer); GRANT SELECT ON s.guarded TO {quoted(user)};"
        "CREATE POLICY mine ON s.guarded USING (k > 1); ALTER TABLE s.guarded ENABLE ROW LEVEL "
        "SECURITY;",
        url=url,
    )
    mine = url.replace("postgres@", "re%22ader@")
    wanted = TableChoice(tables=tuple(map(parse_pattern, ("s.*", '"S".*', "locked.t", 's."*"'))))

    def problems() -> tuple[tuple[TableProblem, ...], int]:
        with closing(PostgresSource().open_catalog(spec_of(mine))) as opened:
            opened.snapshot("snapshot")
            chosen = choose(wanted, opened.list_tables())
            described = describe_tables(opened, chosen)
            columns = [each for table in chosen.tables for each in unreadable_columns(table)]
            found = each_once((*chosen.problems, *columns, *described.problems))
            return found, len(described.tables)

    before, readable = problems()
    kinds = {(problem.kind, problem.table) for problem in before}
    assert {("no right", "locked.t"), ("no right", "S.orders"), ("column", "s.types")} <= kinds
    assert ("rows hidden", "s.guarded") in kinds
    assert ("not populated", "s.unfilled") in kinds
    assert readable == 2
    assert f'GRANT USAGE ON SCHEMA "locked" TO {quoted(user)};\n' in script(before)
    assert "two\nlines" in script(before)
    postgres.run(script(before), url=url)
    after, readable = problems()
    assert after == ()
    assert readable > len(HOSTILE) + 5
    postgres.run(
        f"DROP TABLE s.guarded; DROP OWNED BY {quoted(user)}; DROP ROLE {quoted(user)}", url=url
    )


def test_the_list_is_of_the_snapshot(postgres: Any, url: str, catalog: PostgresCatalog) -> None:
    """Newer tables are not in it; dropped and renamed ones are reported by name."""
    make = "CREATE TABLE s.{0} (k integer);"
    postgres.run(make.format("dropped") + make.format("renamed") + make.format("later"), url=url)
    catalog.snapshot("snapshot")
    first = catalog.list_tables()
    postgres.run(
        "DROP TABLE s.dropped; ALTER TABLE s.renamed RENAME TO renamed_since;"
        "CREATE TABLE s.new (k integer)",
        url=url,
    )
    again = by_name(catalog.list_tables())
    assert "s.new" not in again
    assert [each.kind for each in again["s.dropped"].obstacles] == ["gone"]
    assert [each.kind for each in again["s.renamed"].obstacles] == ["gone"]
    described = describe_tables(
        catalog, choose(TableChoice(tables=(parse_pattern("s.*e*"),)), first)
    )
    assert {(problem.kind, problem.table) for problem in described.problems} == {
        ("gone", "s.dropped"),
        ("gone", "s.renamed"),
    }
    assert "later" in {table.name for table in described.tables}
    postgres.run("DROP TABLE s.renamed_since, s.new, s.later", url=url)


def test_names_mean_what_they_mean_to_one_run(url: str, catalog: PostgresCatalog) -> None:
    """By case and search path; a partition, which is not in the list, is found by its name."""
    texts = ("S.ORDERS", '"S".orders', "s.parted_1a", "s.Größe😀")
    for text in texts:
        pattern = parse_pattern(text)
        chosen = choose(TableChoice(tables=(pattern,)), catalog.list_tables())
        (info,) = describe_tables(catalog, chosen).tables
        assert pattern.table is not None
        assert info == catalog.describe(pattern.table)
    wanted = TableChoice(tables=(parse_pattern("pg_class"), parse_pattern("s.none")))
    found = describe_tables(catalog, choose(wanted, catalog.list_tables()))
    assert [problem.error.message for problem in found.problems] == [
        "the table pg_class is not in many%20tables, or you have no right to read it"
    ]
    assert [info.name for info in found.tables] == ["none"]
