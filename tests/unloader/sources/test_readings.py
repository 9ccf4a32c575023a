"""From the columns of a source to the columns of one scan."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from partition_planner.model import Piece, TableInfo, WholeTable
from unloader.errors import SourceError
from unloader.model import Extract, Projection, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.questions import project
from unloader.sources.readings import (
    ENCODED_TYPE,
    TEXT,
    ColumnReadings,
    OutputNeeds,
    Reading,
    choose,
)
from unloader.sources.registry import source_of
from writers.model import TextFormat
from writers.schema import read_schema
from writers.text.text_writer import open_encoder

CSV = OutputNeeds(text=TextFormat())
MASKED = OutputNeeds(text=TextFormat(date_format="YYYYMMDD"))
PARQUET = OutputNeeds(text=None)


def column(*readings: Reading, name: str = "c", beside: str = "") -> ColumnReadings:
    """Return a column with these readings."""
    return ColumnReadings(
        name=name,
        source_type="T",
        nullable=None,
        readings=readings,
        mask="date",
        beside=beside,
        added_by="--zone-columns",
    )


VALUE = Reading(expression="c", output_type="int64")
AS_TEXT = Reading(expression="text of c", output_type="string", serves=TEXT, as_text=False)
AS_VALUE = Reading(expression="c", output_type="int64", serves=frozenset(("parquet",)))
RENDERED = Reading(expression="c::text", output_type=ENCODED_TYPE, serves=frozenset(("encoded",)))


def test_outputs_share_what_both_can_read() -> None:
    """A reading that serves both is read once; two that differ stand side by side."""
    made = choose([column(VALUE, name="a"), column(AS_TEXT, AS_VALUE, name="b")], [CSV, PARQUET])
    assert [(each.name, each.output_type) for each in made.columns] == [
        ("a", "int64"),
        ("b", "string"),
        ("b", "int64"),
    ]
    assert made.outputs == ((0, 1), (0, 2))
    assert read_schema(made.schema).types == [pa.int64(), pa.string(), pa.int64()]


def test_the_database_renders_text_for_a_single_output_only() -> None:
    """Encoded text serves one text output whose dialect the database can write, and only that."""
    columns = [column(VALUE, RENDERED)]
    assert choose(columns, [CSV], encodes=lambda text: True).route == "encoded"
    cut = OutputNeeds(text=TextFormat(), batches_only=True)
    for outputs in ([CSV, PARQUET], [CSV, CSV], [PARQUET], [cut]):
        assert choose(columns, outputs, encodes=lambda text: True).route == "arrow"
    assert choose(columns, [CSV], encodes=lambda text: False).route == "arrow"
    assert choose(columns, [CSV]).route == "arrow"


def test_the_database_renders_no_empty_lines() -> None:
    """A database leaves an empty text bare, which would be an empty line for a single column."""
    marked = OutputNeeds(text=TextFormat(null="\\N"))
    one, two = [column(VALUE, RENDERED)], [column(VALUE, RENDERED, name=name) for name in "ab"]
    assert choose(one, [marked], encodes=lambda text: True).route == "arrow"
    assert choose(two, [marked], encodes=lambda text: True).route == "encoded"
    chosen = OutputNeeds(text=TextFormat(null="\\N"), columns=("b",))
    assert choose(two, [chosen], encodes=lambda text: True).route == "arrow"


def test_text_under_a_mask_is_another_use() -> None:
    """A column whose text may follow a mask is read as the mask needs it."""
    plain = Reading(expression="any", output_type="string", serves=frozenset(("text",)))
    masked = Reading(expression="finite", output_type="date32[day]")
    for output, expression in ((CSV, "any"), (MASKED, "finite"), (PARQUET, "finite")):
        (chosen,) = choose([column(plain, masked)], [output]).columns
        assert chosen.expression == expression


def test_a_column_that_no_reading_serves_is_refused_by_name() -> None:
    """Nothing is left out in silence, apart from a column that only accompanies another."""
    with pytest.raises(SourceError, match="column c has the type T") as refused:
        choose([column(AS_TEXT)], [PARQUET])
    assert "--exclude c" in refused.value.hint
    zone = column(AS_VALUE, name="z", beside="c")
    assert [each.name for each in choose([column(VALUE), zone], [CSV]).columns] == ["c"]
    assert [each.name for each in choose([column(VALUE), zone], [PARQUET]).columns] == ["c", "z"]


def duckdb_file(folder: Path) -> SourceSpec:
    """Make a table whose dates and numbers text and Parquet read in different ways."""
    path = folder / "t.db"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, DATE '2024-02-29' + i::INTEGER AS d, 'x' || i AS s, "
            "TIMESTAMP '2024-01-01 00:00:00' + to_days(i::INTEGER) AS ts, i::HUGEINT AS h "
            "FROM range(5) r(i)"
        )
    return SourceSpec(kind="duckdb", location=f"duckdb://{path}")


def sqlite_file(folder: Path) -> SourceSpec:
    """Make a table with a column of any kind of value."""
    path = folder / "t.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (i INTEGER, x ANY, r REAL)")
        connection.execute("INSERT INTO t VALUES (1, 'a', 0.1), (2, 2.5, NULL), (NULL, NULL, -1)")
    return SourceSpec(kind="sqlite", location=f"sqlite://{path}")


def described(spec: SourceSpec, *outputs: OutputNeeds) -> tuple[TableInfo, Projection]:
    """Return the table and its projection for some outputs."""
    with closing(source_of(spec.kind).open_catalog(spec)) as catalog:
        table = catalog.describe(parse_table("t"))
        return table, project(catalog, table, None, outputs)


def batches(spec: SourceSpec, table: TableInfo, projection: Projection) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table."""
    extract = Extract(
        source=spec, snapshot=None, table=table, query=None, where=None, projection=projection
    )
    with closing(source_of(spec.kind).open_reader(spec, None)) as reader:
        for batch in reader.batches(
            extract, Piece(unit="u", selector=WholeTable()), batch_bytes=1 << 20
        ):
            assert isinstance(batch, pa.RecordBatch)
            yield batch


def csv_of(found: list[pa.RecordBatch]) -> bytes:
    encoder = open_encoder(found[0].schema, TextFormat(), "auto")
    return b"".join(bytes(encoder.encode(batch)) for batch in found)


@pytest.mark.parametrize("make", [duckdb_file, sqlite_file])
def test_one_scan_feeds_csv_and_parquet(make: object, tmp_path: Path) -> None:
    """Each of two outputs gets from one scan what its own scan gives it, to the byte."""
    spec: SourceSpec = make(tmp_path)  # type: ignore[operator]
    table, both = described(spec, CSV, PARQUET)
    found = list(batches(spec, table, both))
    for taken, output in zip(both.outputs, (CSV, PARQUET), strict=True):
        mine = [batch.select(list(taken)) for batch in found]
        table, alone = described(spec, output)
        theirs = list(batches(spec, table, alone))
        if output is CSV:
            assert csv_of(mine) == csv_of(theirs)
        else:
            assert mine == theirs
            assert all(
                a.schema.equals(b.schema, check_metadata=True)
                for a, b in zip(mine, theirs, strict=True)
            )
