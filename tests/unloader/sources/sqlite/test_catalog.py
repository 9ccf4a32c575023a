"""The parent's view of a SQLite file: one table and all tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from partition_planner.model import RowExtent, RowRange, TableInfo
from unloader.errors import SourceError
from unloader.model import Extract, SourceSpec
from unloader.request.names import parse_table
from unloader.selection.choice import TableChoice, choose, parse_pattern
from unloader.sources.questions import describe_tables, project
from unloader.sources.readings import OutputNeeds
from unloader.sources.sqlite import catalog as describing
from unloader.sources.sqlite.catalog import SQLiteCatalog
from unloader.sources.sqlite.source import SQLiteSource
from unloader.sources.testing import check_many_tables

SCRIPT = """
CREATE TABLE plain (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price DECIMAL(10,2));
INSERT INTO plain VALUES (10, 'a', 1), (20, 'b', 2), (31, 'c', 3);
CREATE INDEX plain_name ON plain (name);
CREATE TABLE bare (k TEXT PRIMARY KEY, v INT) WITHOUT ROWID;
CREATE TABLE shadowed (rowid TEXT, v INT);
CREATE TABLE eclipsed (rowid TEXT, _ROWID_ TEXT, oid TEXT);
CREATE TABLE descending (id INTEGER PRIMARY KEY DESC);
CREATE TABLE vacant (v INT);
CREATE TABLE "Mixed Case" (v INT);
CREATE VIRTUAL TABLE boxes USING rtree(id, low, high);
INSERT INTO boxes VALUES (1, 0, 1);
CREATE VIEW dear AS SELECT name, price * 2 AS double FROM plain;
INSERT INTO shadowed VALUES ('x', 1), ('y', 2);
ANALYZE;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a table of every kind."""
    file = tmp_path / "data.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(SCRIPT)
    return file


@pytest.fixture
def catalog(path: Path) -> Iterator[SQLiteCatalog]:
    """The open catalog of that file."""
    spec = SourceSpec(kind="sqlite", location=f"sqlite://{path}")
    with closing(SQLiteSource().open_catalog(spec)) as opened:
        yield opened


def described(catalog: SQLiteCatalog, name: str) -> TableInfo:
    """Return the description of a table."""
    return catalog.describe(parse_table(name))


def extract_of(catalog: SQLiteCatalog, table: TableInfo, where: str | None = None) -> Extract:
    """Return an extract of the whole table; no worker is started for it."""
    return Extract(
        source=SourceSpec(kind="sqlite", location=""),
        snapshot=None,
        table=table,
        query=None,
        where=where,
        projection=project(catalog, table, None, (OutputNeeds(text=None),)),
    )


def test_a_table_has_extent_and_estimates(catalog: SQLiteCatalog) -> None:
    """A rowid table is cut between its first and last rowid; ANALYZE gives the rows."""
    table = described(catalog, "PLAIN")
    assert (table.schema, table.name) == ("main", "plain")
    assert table.extents == (RowExtent(first=10, last=32),)
    assert table.row_ranges
    assert table.rows == 3
    assert table.bytes
    assert [(column.name, column.nullable) for column in table.columns] == [
        ("id", False),
        ("name", False),
        ("price", True),
    ]


@pytest.mark.parametrize("name", ["bare", "eclipsed", "dear", "boxes"])
def test_without_a_usable_rowid_there_are_no_ranges(catalog: SQLiteCatalog, name: str) -> None:
    """WITHOUT ROWID, three columns that hide the rowid, views and virtual tables stay whole."""
    table = described(catalog, name)
    assert not table.row_ranges
    assert table.extents == ()


def test_a_column_may_be_called_rowid(catalog: SQLiteCatalog) -> None:
    """Ranges go by the rowid itself, not by a column of that name."""
    table = described(catalog, "shadowed")
    assert table.extents == (RowExtent(first=1, last=3),)
    selector = RowRange(first=2, last=None)
    extract = extract_of(catalog, table)
    assert catalog.statement(extract, selector).endswith('WHERE "shadowed"._rowid_ >= 2')
    assert catalog.count(extract) == 2


def test_a_descending_key_is_no_alias(catalog: SQLiteCatalog) -> None:
    """`INTEGER PRIMARY KEY DESC`, which SQLite lets hold anything, is read with care."""
    table = described(catalog, "descending")
    assert table.columns[0].nullable
    assert "typeof" in extract_of(catalog, table).projection.columns[0].expression


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1 AS a, 2 AS A", "two columns of the query are named"),
        ("SELEC 1", "syntax error"),
        ("SELECT 1; DROP TABLE plain", "one statement"),
        ("DELETE FROM plain", "syntax error"),
        ("SELECT nope FROM plain", "no such column: nope"),
        ("SELECT ? AS a", "bindings"),
        ("SELECT 1) AS a, (SELECT 2", "syntax error"),
    ],
)
def test_queries_that_are_not_accepted(catalog: SQLiteCatalog, query: str, message: str) -> None:
    """A query that is wrong, or more than a query, is refused in SQLite's words."""
    with pytest.raises(SourceError, match=message):
        catalog.describe_query(query)
    assert described(catalog, "plain").rows == 3


@pytest.mark.parametrize(
    ("where", "rows"), [("id > 10", 2), ("name = 'a' OR 1 -- all", 3), ("plain.id < 0", 0)]
)
def test_conditions_go_into_statement_and_count(
    catalog: SQLiteCatalog, where: str, rows: int
) -> None:
    """The user's condition narrows a range, with any operators or comments."""
    table = described(catalog, "plain")
    extract = extract_of(catalog, table, where)
    assert catalog.count(extract) == rows
    assert catalog.statement(extract, RowRange(first=None, last=20)).endswith(
        f'FROM "main"."plain" WHERE "plain".rowid < 20 AND ({where}\n)'
    )


@pytest.mark.parametrize(
    "where",
    ["nope = 1", "id >", "id = 10) OR (id = 20", "1 ORDER BY id", "id = ?", "1; DROP TABLE t"],
)
def test_conditions_that_are_not_accepted(catalog: SQLiteCatalog, where: str) -> None:
    """A condition that is wrong, or breaks out of its parentheses, fails before any worker runs."""
    extract = extract_of(catalog, described(catalog, "plain"), where)
    with pytest.raises(SourceError, match="--where"):
        catalog.check_where(extract)


HOSTILE = ('a"b', "two\nlines", "dot.ted", "*", "[x]?", "Größe😀", "'; --", " ", "select")
MAKE = """
CREATE TABLE keyed (k INTEGER PRIMARY KEY, v TEXT NOT NULL, w REAL);
CREATE TABLE descending (k INTEGER PRIMARY KEY DESC, v);
CREATE TABLE pair (a INT, b TEXT, PRIMARY KEY (a, b));
CREATE TABLE without (a TEXT PRIMARY KEY, b BLOB) WITHOUT ROWID;
CREATE TABLE strict_one (a INT, b ANY, c BLOB, d INT AS (a + 1), e INT AS (a) STORED) STRICT;
CREATE TABLE taken (rowid TEXT, _rowid_ TEXT, oid TEXT);
CREATE TABLE taken_some (ROWID TEXT, k);
CREATE TABLE untyped (a, b WHATEVER, c BOOLEAN, d DECIMAL(10,2));
INSERT INTO keyed SELECT value, 'x' || value, value / 2.0 FROM generate;
DELETE FROM keyed WHERE k % 5 = 0; INSERT INTO keyed VALUES (-9, '', NULL);
INSERT INTO untyped VALUES (1, x'00', 1, 2.5), (NULL, 'text', NULL, NULL);
CREATE VIEW seen AS SELECT k, v || v AS vv, x'00' AS bytes, rowid AS r FROM keyed;
CREATE VIEW broken AS SELECT a FROM nowhere;
CREATE TABLE sqliteish (a); ANALYZE;
"""


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def many_tables(tmp_path: Path) -> Path:
    """A file with tables of every kind."""
    made = tmp_path / "data.db"
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("CREATE TEMP TABLE generate (value)")
        connection.executemany("INSERT INTO generate VALUES (?)", ((at,) for at in range(1, 900)))
        connection.commit()
        connection.executescript(MAKE)
        for name in HOSTILE:
            connection.execute(f"CREATE TABLE {quoted(name)} (k INTEGER, {quoted(name)} TEXT)")
        if has_fts(connection):
            connection.execute("CREATE VIRTUAL TABLE words USING fts5(a, b)")
        connection.commit()
    return made


def has_fts(connection: sqlite3.Connection) -> bool:
    """Return whether this SQLite has virtual tables that keep shadow tables."""
    found = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
    return found.fetchone() is not None


def spec_of(many_tables: Path) -> SourceSpec:
    """Return the spec of a file."""
    return SourceSpec(kind="sqlite", location=f"sqlite://{many_tables}")


@pytest.mark.parametrize("lists", [True, False])
def test_contract_of_many_tables(
    many_tables: Path, lists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of every kind; also where the dictionary of an old SQLite does not tell them apart."""
    if lists and not describing.LISTS_TABLES:
        pytest.skip("this SQLite has no pragma_table_list")
    monkeypatch.setattr(describing, "LISTS_TABLES", lists)
    listing = check_many_tables(SQLiteSource(), spec_of(many_tables), at_least=len(HOSTILE) + 10)
    found = {table.name: table for table in listing.tables}
    assert "keyed" in found
    assert found["seen"].family == "view"
    if lists and "words" in found:
        assert found["words"].family == "external table"
        assert found["words_data"].system


def test_the_number_of_statements_is_fixed(
    many_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tables there are; only the ends of each table are asked for separately."""
    with closing(sqlite3.connect(many_tables)) as connection:
        made = "".join(f"CREATE TABLE t{at} (a);" for at in range(150))
        connection.executescript(f"BEGIN; {made} COMMIT")
    with closing(SQLiteSource().open_catalog(spec_of(many_tables))) as catalog:
        counted: list[str] = []
        run = catalog.rows

        def counting(sql: str, *more: Any) -> Any:
            counted.append(sql)
            return run(sql, *more)

        monkeypatch.setattr(catalog, "rows", counting)
        listing = catalog.list_tables()
        before = len(counted)
        assert before <= 4
        wanted = TableChoice(tables=(parse_pattern("*"),))
        described = describe_tables(catalog, choose(wanted, listing))
        assert len(described.tables) == 150 + len(HOSTILE) + 9
        assert len(counted) - before <= 12 + len(described.tables)


@pytest.mark.parametrize("names", [("keyed",), ("keyed", "pair")])
def test_a_table_that_cannot_be_read_is_a_problem(
    many_tables: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone and among others, which are described."""
    with closing(SQLiteSource().open_catalog(spec_of(many_tables))) as catalog:
        wanted = choose(TableChoice(tables=tuple(map(parse_pattern, names))), catalog.list_tables())
        run = catalog.rows

        def refusing(sql: str, *more: Any) -> Any:
            if 'max("keyed"' in sql:
                raise SourceError("database disk image is malformed")
            return run(sql, *more)

        monkeypatch.setattr(catalog, "rows", refusing)
        found = describe_tables(catalog, wanted)
    assert [info.name for info in found.tables] == list(names[1:])
    assert [(each.kind, each.table) for each in found.problems] == [("refused", "main.keyed")]


def test_what_is_wrong_with_one_is_told(many_tables: Path) -> None:
    """A view whose table is gone; the others are described."""
    with closing(SQLiteSource().open_catalog(spec_of(many_tables))) as catalog:
        wanted = TableChoice(tables=tuple(map(parse_pattern, ("KEYED", "broken", "none"))))
        found = describe_tables(catalog, choose(wanted, catalog.list_tables()))
        assert [info.name for info in found.tables] == ["keyed"]
        assert [(each.kind, each.table) for each in found.problems] == [
            ("refused", "main.broken"),
            ("refused", "none"),
        ]
