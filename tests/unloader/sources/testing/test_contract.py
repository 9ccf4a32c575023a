"""The contract check itself: it must fail where a source breaks a promise."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from partition_planner.model import Selector, TableInfo
from unloader.errors import SnapshotGone
from unloader.events import Observer, silent
from unloader.model import Consistency, Extract, Snapshot, SourceSpec, TableName, ValueOptions
from unloader.request.names import parse_table
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources.file_state import database_path
from unloader.sources.readings import ColumnReadings
from unloader.sources.sqlite.catalog import SQLiteCatalog
from unloader.sources.sqlite.source import SQLiteSource
from unloader.sources.testing import check_source

ROWS = [(1, "", 0.0), (2, None, -1.5), (3, "x", None)]


@pytest.fixture
def spec(tmp_path: Path) -> SourceSpec:
    """A file with the table `t` of `ROWS`."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (i INTEGER PRIMARY KEY, s TEXT, r REAL)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    return SourceSpec(kind="sqlite", location=f"sqlite://{path}")


@pytest.mark.parametrize(
    "expected",
    [
        ROWS[:2],
        [*ROWS, ROWS[0]],
        [(1, None, 0.0), *ROWS[1:]],
        [(1, "", -0.0), *ROWS[1:]],
        [(1, "", 0), *ROWS[1:]],
        [("1", "", 0.0), *ROWS[1:]],
    ],
    ids=["fewer", "more", "null for empty", "sign of zero", "integer for real", "text for integer"],
)
def test_other_rows_are_told_apart(spec: SourceSpec, expected: list[tuple[object, ...]]) -> None:
    """Rows too many, too few or changed in the least break the contract."""
    with pytest.raises(AssertionError, match="rows are missing"):
        check_source(SQLiteSource(), spec, parse_table("t"), expected)


class BrokenCatalog(SQLiteCatalog):
    """A catalog that keeps all promises but the one named by `breaks`."""

    breaks = ""
    described = 0
    taken = 0

    def list_tables(self) -> Listing:
        """Leave a table out."""
        found = super().list_tables()
        return replace(found, tables=()) if self.breaks == "list" else found

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = silent
    ) -> tuple[TableInfo | Obstacle, ...]:
        """Forget the size of a table where there are several."""
        first, *others = super().describe_tables(tables, observe)
        if self.breaks == "among" and isinstance(first, TableInfo):
            first = replace(first, bytes=None)
        return (first, *others)

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        """Describe a table differently each time."""
        info = super().describe(table, observe)
        type(self).described += 1
        return replace(info, rows=self.described) if self.breaks == "describe" else info

    def snapshot(self, consistency: Consistency) -> Snapshot:
        taken = super().snapshot(consistency)
        type(self).taken += 1
        if self.breaks == "gone" and self.taken > 1:
            raise SnapshotGone("it is gone")
        again = self.breaks == "snapshot" and self.taken > 1
        return replace(taken, value=f"{self.taken}") if again else taken

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        first, *others = super().readings(table, query, values)
        if self.breaks == "names":
            first = replace(first, name="x")
        if self.breaks == "uses":
            usual = replace(first.readings[0], serves=frozenset(("parquet",)))
            first = replace(first, readings=(usual, *first.readings[1:]))
        return (first, *others)

    def cancel(self) -> None:
        """Raise, which it never may."""
        super().cancel()
        if self.breaks == "cancel":
            raise ValueError

    def count(self, extract: Extract) -> int:
        """Count one row too many."""
        return super().count(extract) + (self.breaks == "count")

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Show the same statement for all selectors."""
        shown = super().statement(extract, selector)
        return "SELECT" if self.breaks == "statement" else shown


class BrokenSource(SQLiteSource):
    """A SQLite source with a broken catalog."""

    def __init__(self, breaks: str) -> None:
        """Remember which promise is broken."""
        self.breaks = breaks
        self.catalog = type("Catalog", (BrokenCatalog,), {})

    def open_catalog(self, spec: SourceSpec) -> SQLiteCatalog:
        """Open the broken catalog."""
        catalog = self.catalog(database_path(spec))
        catalog.breaks = self.breaks
        return catalog

    def __reduce__(self) -> tuple[object, ...]:
        """Become a sound source in the worker, which cannot import this module."""
        return (SQLiteSource, ())


@pytest.mark.parametrize(
    ("breaks", "sentence"),
    [
        ("describe", "described differently the second time"),
        ("list", "main.t is not in the list"),
        ("among", "main.t is described as TableInfo"),
        ("names", "readings are given of"),
        ("uses", "column i has no reading for text, not asked for"),
        ("cancel", "cancel raised: ValueError"),
        ("count", "the database counts 4 rows, not 3"),
        ("snapshot", "the source entered another snapshot than the requested one"),
        ("gone", "a snapshot that outlives its run does not exist any more"),
        ("statement", "two selectors are read by the same statement"),
    ],
)
def test_broken_promises_are_named(spec: SourceSpec, breaks: str, sentence: str) -> None:
    """Each broken promise of the catalog has its sentence."""
    with pytest.raises(AssertionError, match=sentence):
        check_source(BrokenSource(breaks), spec, parse_table("t"), ROWS)
