"""All tables of a SQLite file immediately: listed, and described together as each is alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from unloader.errors import SourceError
from unloader.model import SourceSpec
from unloader.selection.choice import TableChoice, choose
from unloader.selection.patterns import parse_pattern
from unloader.sources.many_tables import describe_tables, list_tables
from unloader.sources.sqlite import describing
from unloader.sources.sqlite.source import SQLiteSource
from unloader.sources.testing import check_many_tables

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
def path(tmp_path: Path) -> Path:
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


def spec_of(path: Path) -> SourceSpec:
    """Return the spec of a file."""
    return SourceSpec(kind="sqlite", location=f"sqlite://{path}")


@pytest.mark.parametrize("lists", [True, False])
def test_contract_of_many_tables(path: Path, lists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of every kind; also where the dictionary of an old SQLite does not tell them apart."""
    if lists and not describing.LISTS_TABLES:
        pytest.skip("this SQLite has no pragma_table_list")
    monkeypatch.setattr(describing, "LISTS_TABLES", lists)
    listing = check_many_tables(SQLiteSource(), spec_of(path), at_least=len(HOSTILE) + 10)
    found = {table.name: table for table in listing.tables}
    assert "keyed" in found
    assert found["seen"].family == "view"
    if lists and "words" in found:
        assert found["words"].family == "external table"
        assert found["words_data"].system


def test_the_number_of_statements_is_fixed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tables there are; only their ends are asked for a hundred tables at a time."""
    with closing(sqlite3.connect(path)) as connection:
        made = "".join(f"CREATE TABLE t{at} (a);" for at in range(150))
        connection.executescript(f"BEGIN; {made} COMMIT")
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        counted: list[str] = []
        run = catalog._rows

        def counting(sql: str, *more: Any) -> Any:
            counted.append(sql)
            return run(sql, *more)

        monkeypatch.setattr(catalog, "_rows", counting)
        listing = list_tables(catalog)
        before = len(counted)
        assert before <= 4
        wanted = TableChoice(tables=(parse_pattern("*"),))
        described = describe_tables(catalog, choose(wanted, listing))
        assert len(described.tables) == 150 + len(HOSTILE) + 9
        assert len(counted) - before <= 12


@pytest.mark.parametrize("names", [("keyed",), ("keyed", "pair")])
def test_a_table_that_cannot_be_read_is_a_problem(
    path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone and among others, which are described."""
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        wanted = choose(TableChoice(tables=tuple(map(parse_pattern, names))), list_tables(catalog))
        run = catalog._rows

        def refusing(sql: str, *more: Any) -> Any:
            if 'max("keyed"' in sql:
                raise SourceError("database disk image is malformed")
            return run(sql, *more)

        monkeypatch.setattr(catalog, "_rows", refusing)
        found = describe_tables(catalog, wanted)
    assert [info.name for info in found.tables] == list(names[1:])
    assert [(each.kind, each.table) for each in found.problems] == [("refused", "main.keyed")]


def test_what_is_wrong_with_one_is_told(path: Path) -> None:
    """A view whose table is gone; the others are described."""
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        wanted = TableChoice(tables=tuple(map(parse_pattern, ("KEYED", "broken", "none"))))
        found = describe_tables(catalog, choose(wanted, list_tables(catalog)))
        assert [info.name for info in found.tables] == ["keyed"]
        assert [(each.kind, each.table) for each in found.problems] == [
            ("refused", "main.broken"),
            ("refused", "none"),
        ]
