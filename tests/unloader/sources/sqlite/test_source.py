"""Values out of SQLite, which types values and not columns, against what Python's sqlite3 reads."""

from __future__ import annotations

import gc
import math
import os
import random
import sqlite3
import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from partition_planner.model import Piece, RowRange, WholeTable
from unloader.errors import ConfigError, OutputFailed, SourceError
from unloader.model import Extract, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds
from unloader.sources.sqlite.source import SQLiteSource
from writers.text.number_texts import float_texts

WHOLE = Piece(unit="0001", selector=WholeTable())
TOP = 2**63 - 1


def spec_of(path: Path) -> SourceSpec:
    """Return the spec of a file."""
    return SourceSpec(kind="sqlite", location=f"sqlite://{quote(str(path))}")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a database with one script and the rows of one table."""

    def build(script: str, rows: Sequence[Sequence[object]] = (), table: str = "t") -> Path:
        path = tmp_path / "data.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(script)
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        return path

    return build


def extract_of(
    path: Path,
    table: str = "t",
    *,
    query: str | None = None,
    where: str | None = None,
    as_text: tuple[str, ...] = (),
) -> Extract:
    with closing(SQLiteSource().open_catalog(spec_of(path))) as catalog:
        info = catalog.describe_query(query) if query else catalog.describe(parse_table(table))
        return Extract(
            source=spec_of(path),
            snapshot=catalog.snapshot("none"),
            table=info,
            query=query,
            where=where,
            projection=project(catalog, info, query, (OutputNeeds(text=None),), as_text=as_text),
        )


def batches_of(
    extract: Extract, piece: Piece = WHOLE, batch_bytes: int = 1 << 20
) -> list[pa.RecordBatch]:
    with closing(SQLiteSource().open_reader(extract.source, extract.snapshot)) as reader:
        return list(reader.batches(extract, piece, batch_bytes=batch_bytes))


def rows_of(
    extract: Extract, piece: Piece = WHOLE, batch_bytes: int = 1 << 20
) -> list[tuple[object, ...]]:
    """Return the rows of one unit as Python values."""
    batches = batches_of(extract, piece, batch_bytes)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def types_of(extract: Extract) -> list[str]:
    """Return the output type of each column."""
    return [column.output_type for column in extract.projection.columns]


def test_fetch_memory_bounds_batches(make: Callable[..., Path]) -> None:
    """The rows of a batch follow from the width of the rows and the memory allowed."""
    path = make("CREATE TABLE t (s TEXT)", [("x" * 1000,)] * 2000)
    extract = extract_of(path)
    sizes = [batch.nbytes for batch in batches_of(extract, batch_bytes=100_000)]
    assert max(sizes) < 2 * 100_000
    assert len(sizes) < 60


def test_a_late_value_of_another_class_is_not_missed(make: Callable[..., Path]) -> None:
    """A value of a foreign class far after the first batch stops the unit and names the row."""
    path = make("CREATE TABLE t (i INTEGER)", [(1,)] * 20_000)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE t SET i = 'n/a' WHERE rowid = 19999")
    with pytest.raises(OutputFailed) as caught:
        rows_of(extract_of(path))
    text = str(caught.value)
    assert "column i of main.t" in text
    assert "storage class text" in text
    assert "rowid 19999" in text
    assert "--as-text i" in text


@pytest.mark.parametrize(
    ("declared", "value", "storage"),
    [
        ("INTEGER", "abc", "text"),
        ("INTEGER", 1.5, "real"),
        ("INTEGER", 1e19, "real"),
        ("BIGINT", b"1", "blob"),
        ("BOOLEAN", "true", "text"),
        ("REAL", "1,5", "text"),
        ("DOUBLE PRECISION", b"1.5", "blob"),
        ("TEXT", b"\x00\x01", "blob"),
        ("BLOB", "text", "text"),
        ("BLOB", 5, "integer"),
    ],
)
def test_foreign_storage_classes_are_refused(
    make: Callable[..., Path], declared: str, value: object, storage: str
) -> None:
    """A value that the type of its column would change is refused by class, column and rowid."""
    path = make(f"CREATE TABLE t (ok INTEGER, c {declared})", [(1, None), (2, value)])
    with pytest.raises(OutputFailed) as caught:
        rows_of(extract_of(path))
    assert "column c of main.t" in caught.value.message
    assert f"storage class {storage} in the row with rowid 2" in caught.value.message
    assert "--as-text c" in caught.value.hint
    with_text = rows_of(extract_of(path, as_text=("C",)))
    assert with_text[0] == (1, None)
    shown = with_text[1][1]
    assert shown == (r"\x" + value.hex() if isinstance(value, bytes) else _exact(value))


@pytest.mark.parametrize("declared", ["", "NUMERIC", "DECIMAL(10,2)", "DATETIME", "ANY"])
def test_columns_of_any_kind_become_exact_text(make: Callable[..., Path], declared: str) -> None:
    """Where the declared type fixes no class, each value is written as its own exact text."""
    values = [(1,), (TOP,), (0.1 + 0.2,), (1e300,), ("2020-01-01",), ("",), (None,), (-2.5,)]
    values += [(b"\x00\xff",), (b"",)]
    path = make(f"CREATE TABLE t (c {declared})", values)
    extract = extract_of(path)
    assert types_of(extract) == ["string"]
    assert "exact text" in extract.projection.columns[0].note
    assert not extract.projection.columns[0].lossless
    with closing(sqlite3.connect(path)) as connection:
        stored = [value for (value,) in connection.execute("SELECT c FROM t ORDER BY rowid")]
    assert [value for (value,) in rows_of(extract)] == [_exact(value) for value in stored]


def _exact(value: object) -> str | None:
    """Return the exact text expected for a value."""
    if isinstance(value, bytes):
        return rf"\x{value.hex()}"
    if isinstance(value, float):
        return str(float_texts(pa.array([value]))[0].as_py())
    return None if value is None else str(value)


def test_reals_as_text_read_back_equal(make: Callable[..., Path]) -> None:
    """Every real, written as exact text, reads back as the same bits."""
    bits = random.Random(7)
    reals = [struct.unpack("<d", bits.randbytes(8))[0] for _ in range(3000)]
    reals = [value for value in reals if math.isfinite(value)]
    reals += [-0.0, 0.1, 1 / 3, 1e15, 1e16, 1e22, 1e23, 5e-324, 2.0**63, 123456789.123456789]
    path = make("CREATE TABLE t (c)", [(value,) for value in reals])
    texts = [str(value) for (value,) in rows_of(extract_of(path))]
    assert [struct.pack("<d", float(text)) for text in texts] == [
        struct.pack("<d", value) for value in reals
    ]


def test_text_that_is_not_utf8_is_refused(make: Callable[..., Path]) -> None:
    """Text that is not valid UTF-8 is refused by column; its bytes can be unloaded as a blob."""
    path = make(
        "CREATE TABLE t (ok TEXT, bad TEXT); INSERT INTO t VALUES ('x', CAST(x'ff61' AS TEXT))"
    )
    for as_text in ((), ("bad",)):
        with pytest.raises(OutputFailed, match="column bad holds text that is not valid UTF-8"):
            rows_of(extract_of(path, as_text=as_text))
    for as_text in ((), ("bad",)):
        query = extract_of(path, query="SELECT CAST(bad AS BLOB) AS bad FROM t", as_text=as_text)
        ((value,),) = rows_of(query)
        assert value in (r"\xff61", b"\xffa")  # SQLite calls the expression BLOB since 3.41.


def test_strict_tables_need_no_guards(make: Callable[..., Path]) -> None:
    """STRICT columns are read as they are, ANY as exact text."""
    path = make(
        "CREATE TABLE t (i INT, r REAL, s TEXT, b BLOB, a ANY) STRICT",
        [(1, 2.0, "x", b"y", "007"), (None, None, None, None, 7)],
    )
    extract = extract_of(path)
    assert types_of(extract) == ["int64", "double", "string", "binary", "string"]
    assert [column.expression for column in extract.projection.columns[:4]] == [
        '"t"."i"', '"t"."r"', '"t"."s"', '"t"."b"',
    ]  # fmt: skip
    assert rows_of(extract) == [(1, 2.0, "x", b"y", "007"), (None, None, None, None, "7")]


def test_views_and_queries_keep_values(make: Callable[..., Path]) -> None:
    """Columns of views and queries have the type of the column behind them, others exact text."""
    script = (
        "CREATE TABLE t (i INTEGER, b BLOB); INSERT INTO t VALUES (1, x'00'), (2, NULL);"
        "CREATE VIEW v AS SELECT i, b, i * 1.5 AS x, upper('a' || i) AS u FROM t;"
    )
    path = make(script)
    expected = [(1, b"\0", "1.5", "A1"), (2, None, "3", "A2")]
    assert rows_of(extract_of(path, "v")) == expected
    assert (
        rows_of(extract_of(path, query="SELECT * FROM v ORDER BY i DESC -- all")) == expected[::-1]
    )


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 0, []), (2, 3, [2]), (TOP + 1, None, []), (None, TOP + 1, [1, 2, 3]), (3, TOP, [3])],
)
def test_ranges_are_half_open(
    make: Callable[..., Path], first: int | None, last: int | None, expected: list[int]
) -> None:
    """A range has its first rowid and not its last, up to the ends of 64 bits."""
    path = make("CREATE TABLE t (id INTEGER PRIMARY KEY)", [(1,), (2,), (3,)])
    piece = Piece(unit="0001", selector=RowRange(first=first, last=last))
    assert [row[0] for row in rows_of(extract_of(path), piece)] == expected


def test_wide_tables_are_read_and_searched(make: Callable[..., Path]) -> None:
    """A table of 900 columns is read, and the one refused value in it is found."""
    columns = ", ".join(f"c{at} INTEGER" for at in range(900))
    path = make(f"CREATE TABLE t ({columns})", [tuple(range(900))])
    assert rows_of(extract_of(path)) == [tuple(range(900))]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE t SET c777 = 'x'")
    with pytest.raises(OutputFailed, match=r"column c777 of main\.t"):
        rows_of(extract_of(path))


def test_a_dropped_column_is_an_error(make: Callable[..., Path]) -> None:
    """A column that is gone since the description fails, and is not read as its own name."""
    path = make("CREATE TABLE t (a INT, b TEXT)", [(1, "x")])
    extract = extract_of(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("DROP TABLE t; CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
    with pytest.raises(SourceError, match=r"no such column: t\.b"):
        rows_of(extract)


def test_a_reader_closes_everything(make: Callable[..., Path]) -> None:
    """After a reading that was interrupted, closing leaves no descriptor of the file."""
    path = make("CREATE TABLE t (i INTEGER)", [(1,)] * 5000)
    extract = extract_of(path)
    reader = SQLiteSource().open_reader(extract.source, None)
    batches = reader.batches(extract, WHOLE, batch_bytes=1000)
    next(batches)
    reader.close()
    reader.close()
    del batches
    gc.collect()
    assert str(path) not in _open_files()


def _open_files() -> list[str]:
    links = Path("/proc/self/fd")
    if not links.is_dir():
        pytest.skip("open files are only listed on Linux")
    return [os.readlink(link) for link in links.iterdir() if link.is_symlink()]


@pytest.mark.parametrize(
    "location",
    ["sqlite://data.db", "sqlite://host/data.db", "sqlite://", "sqlite:///", "sqlite:///a.db?x=1"],
)
def test_malformed_urls(location: str) -> None:
    """A URL that is not an absolute path alone is refused with the right form."""
    with pytest.raises(ConfigError, match=r"sqlite:///absolute/path\.db"):
        SQLiteSource().open_catalog(SourceSpec(kind="sqlite", location=location))


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    """Neither parent nor worker creates the file that the URL names."""
    path = tmp_path / "none.db"
    with pytest.raises(SourceError, match=r"file .* does not exist"):
        SQLiteSource().open_catalog(spec_of(path))
    with pytest.raises(SourceError, match=r"file .* does not exist"):
        SQLiteSource().open_reader(spec_of(path), None)
    with pytest.raises(SourceError, match="is not a file"):
        SQLiteSource().open_catalog(spec_of(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """Any other file is refused in SQLite's own words."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all " * 100)
    with pytest.raises(SourceError, match="file is not a database"):
        SQLiteSource().open_catalog(spec_of(path))
    assert str(path) not in _open_files()
