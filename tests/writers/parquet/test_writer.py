"""Parquet files: exact values, options, row groups, order, and what readers find in them."""

from __future__ import annotations

import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from amounts import examples
from encoders.parquet_files import read_arrow, read_duckdb, reference_rows, spec, typed_rows, write
from encoders.writer_contract import check_writer
from hypothesis import given, settings
from hypothesis import strategies as st
from long_tests import OTHER_ROUTES, also

from writers.errors import FormatError, SchemaMismatch, ValueNotRepresentable, WriteError
from writers.model import Compression, ParquetFormat, SortColumn, TextFormat
from writers.parquet.options import supported
from writers.parquet.writer import ParquetWriter, RowGroups


@pytest.mark.parametrize(
    ("parquet", "codec", "file_size"),
    [
        (ParquetFormat(), "zstd", 0),
        (ParquetFormat(row_group_rows=1000), "none", 20_000),
        (ParquetFormat(dictionary=False), "snappy", 0),
        (ParquetFormat(version="1.0", statistics=False), "gzip", 0),
        (ParquetFormat(version="2.4"), "lz4", 0),
        (ParquetFormat(data_page_version="2.0", byte_stream_split=True), "zstd", 0),
        (ParquetFormat(row_group_bytes=5000), "zstd", 20_000),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize(
    ("encoder", "read_back"),
    [("native", read_arrow), *also(OTHER_ROUTES, ("plain", read_arrow), ("native", read_duckdb))],
)
def test_contract(
    parquet: ParquetFormat, codec: Any, file_size: int, encoder: Any, read_back: Any
) -> None:
    """Two independent readers get back every value of every type, in order."""
    check_writer(
        lambda directory, schema: ParquetWriter(
            spec(
                directory,
                format=parquet,
                compression=Compression(codec=codec),
                file_size_bytes=file_size,
                encoder=encoder,
            ),
            schema,
            "t",
        ),
        read_back,
    )


def test_schema_is_kept(tmp_path: Path) -> None:
    """Types, time zones, nested columns, nullability and metadata come back as they were."""
    schema = pa.schema(
        [
            pa.field("d", pa.decimal128(38, 10), metadata={b"source": b"NUMBER"}),
            pa.field("zoned", pa.timestamp("us", tz="Europe/Berlin")),
            pa.field("nano", pa.timestamp("ns")),
            pa.field("large", pa.large_string(), nullable=False),
            pa.field("list", pa.list_(pa.struct([pa.field("a.b", pa.int32())]))),
            pa.field("a.b", pa.int32()),
            pa.field("code", pa.dictionary(pa.int32(), pa.string())),
        ],
        metadata={b"table": b"T"},
    )
    rows = [
        {
            "d": Decimal("1.5"),
            "zoned": datetime(3844, 1, 1),
            "nano": 1,
            "large": "",
            "list": [{"a.b": 1}, None],
            "a.b": 2,
            "code": "x",
        },
        {"large": "y"},
    ]
    table = pa.Table.from_pylist(rows, schema)
    (path,) = write(tmp_path, table)
    found = pq.read_table(path)
    assert found.schema.equals(schema, check_metadata=False)
    assert found.equals(table)
    assert found.schema.metadata[b"table"] == b"T"
    assert found.schema.field("d").metadata[b"source"] == b"NUMBER"
    told = dict(in_duckdb(f"select key, value from parquet_kv_metadata('{path}')"))
    assert told[b"table"] == b"T"


@pytest.mark.parametrize("bad", [pa.month_day_nano_interval(), pa.date64(), pa.struct([])], ids=str)
def test_type_without_a_parquet_form_is_refused(tmp_path: Path, bad: pa.DataType) -> None:
    """The refusal comes before any row, names the column, and leaves no file."""
    schema = pa.schema([("fine", pa.int32()), ("bad one", bad)])
    with pytest.raises(FormatError, match=r"'bad one'.*Next: "):
        ParquetWriter(spec(tmp_path), schema, "t")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", [1, 100_000])
def test_value_out_of_range_is_refused(tmp_path: Path, rows: int) -> None:
    """A value the version cannot hold is refused with its column, never cut.

    Of many rows Arrow has begun a row group by then, and cannot end the file.
    """
    when = pa.array(range(1, rows + 1), pa.timestamp("ns"))
    table = pa.table({"n": pa.array(range(rows)), "when": when})
    writer = ParquetWriter(spec(tmp_path, format=ParquetFormat(version="2.4")), table.schema, "t")
    writer.write(table.to_batches()[0])
    with pytest.raises(ValueNotRepresentable, match=r"'when'.*lose data.*Next: "):
        writer.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("encoder", ["auto", "plain"])
def test_coarser_timestamps_become_microseconds(tmp_path: Path, encoder: Any) -> None:
    """Where that is asked for: values and zones stay, and one out of range is refused."""
    moments = [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59), None]
    kinds = {"s": pa.timestamp("s"), "ms": pa.timestamp("ms", "UTC"), "us": pa.timestamp("us")}
    table = pa.table({name: pa.array(moments, kind) for name, kind in kinds.items()})
    options: Any = {"microseconds": True, "encoder": encoder}
    there = read_arrow(write(tmp_path, table, **options))
    assert [str(field.type) for field in there.schema] == [
        "timestamp[us]",
        "timestamp[us, tz=UTC]",
        "timestamp[us]",
    ]
    assert there.cast(table.schema).equals(table)
    far = pa.table({"s": pa.array([2**60], pa.timestamp("s"))})
    writer = ParquetWriter(spec(tmp_path, **options), far.schema, "far")
    with pytest.raises(ValueNotRepresentable, match="does not fit into microseconds"):
        writer.write(far.to_batches()[0])
    writer.abort()


def test_batch_of_another_schema_is_refused(tmp_path: Path) -> None:
    """A batch with other columns than the file is an error, not a wrong file."""
    writer = ParquetWriter(spec(tmp_path), pa.schema([("a", pa.int32())]), "t")
    with pytest.raises(SchemaMismatch, match=r"column 1 is b \(string\) instead of a \(int32\)"):
        writer.write(pa.RecordBatch.from_pydict({"b": ["x"]}))
    writer.abort()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": ParquetFormat(version="3")}, "2.6"),
        ({"format": ParquetFormat(row_group_rows=0)}, "0 rows are impossible"),
        ({"format": ParquetFormat(row_group_bytes=0)}, "0 bytes are impossible"),
        (
            {"format": ParquetFormat(version="1.0", byte_stream_split=True)},
            "not have the encoding byte",
        ),
        ({"format": ParquetFormat(data_page_version="3.0")}, "2.0"),
        ({"compression": Compression(codec="zstd", level=40)}, "1 to 22"),
        ({"compression": Compression(codec="snappy", level=1)}, "no levels"),
        ({"format": TextFormat()}, "TextFormat"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """Options that cannot be met are refused before a file is created."""
    with pytest.raises(FormatError, match=said):
        ParquetWriter(spec(tmp_path, **changes), pa.schema([("a", pa.int32())]), "t")
    assert not list(tmp_path.iterdir())


def test_new_file_after_file_size(tmp_path: Path) -> None:
    """Files end after the row group that reaches the size, are numbered, and miss no row."""
    table = reference_rows(10_000)
    changes = {"format": ParquetFormat(row_group_rows=500), "file_size_bytes": 40_000}
    paths = write(tmp_path, table, 700, **changes)
    assert len(paths) > 3
    assert [path.name for path in paths[:2]] == ["t.001.parquet.part", "t.002.parquet.part"]
    assert all(path.stat().st_size > 40_000 for path in paths[:-1])
    assert read_arrow(paths).equals(table)


def test_abandoned_file_has_no_footer(tmp_path: Path) -> None:
    """What a writer given up had written cannot be opened as Parquet, even if it survived."""
    table = reference_rows(3000)
    changes = {"format": ParquetFormat(row_group_rows=1000), "buffer_bytes": 100}
    writer = ParquetWriter(spec(tmp_path, **changes), table.schema, "t")
    writer.write(table.to_batches()[0])
    os.link(tmp_path / "t.parquet.part", tmp_path / "kept")
    writer.abort()
    del writer
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").stat().st_size > 0
    with pytest.raises(pa.ArrowInvalid):
        pq.ParquetFile(tmp_path / "kept")


@pytest.mark.parametrize("buffer_bytes", [4 << 20, 10_000])
def test_full_disk_is_an_error_with_the_path(full_disk: Path, buffer_bytes: int) -> None:
    """The destination's error comes through Arrow as it is, and nothing is left."""
    table = reference_rows(40_000)
    writer = ParquetWriter(spec(full_disk, buffer_bytes=buffer_bytes), table.schema, "t")

    def produce() -> None:
        for batch in table.to_batches():
            writer.write(batch)
        writer.close()

    with pytest.raises(WriteError, match=r"t\.parquet\.part: .*\((ENOSPC|EFBIG)\)\. Next: "):
        produce()
    writer.abort()
    assert not list(full_disk.iterdir())


def in_duckdb(sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with duckdb.connect(config={"threads": 1}) as connection:
        return connection.sql(sql).fetchall()


def test_statistics_and_index_are_there(tmp_path: Path) -> None:
    """Each column has its least and greatest value, and an index of its pages."""
    (path,) = write(tmp_path, pa.table({"n": [3, 1, 2], "t": ["b", "a", None]}))
    group = pq.read_metadata(path).row_group(0)
    number, text = (group.column(i).statistics for i in range(2))
    assert (number.min, number.max, number.null_count) == (1, 3, 0)
    assert (text.min, text.max, text.null_count) == ("a", "b", 1)
    assert all(group.column(i).has_column_index for i in range(2))
    assert all(group.column(i).has_offset_index for i in range(2))
    found = in_duckdb(f"select stats_min_value, stats_max_value from parquet_metadata('{path}')")
    assert found == [("1", "3"), ("a", "b")]


@pytest.mark.parametrize("letters", [4000, 1 << 20])
def test_long_texts_do_not_grow_the_footer(tmp_path: Path, letters: int) -> None:
    """A value has a few kilobytes in the footer at most, or none."""
    table = pa.table({"t": [chr(65 + number) * letters for number in range(20)]})
    (path,) = write(tmp_path, table)
    metadata = pq.read_metadata(path)
    assert metadata.serialized_size < 20_000
    assert path.stat().st_size < 30_000
    assert metadata.row_group(0).column(0).statistics.null_count == 0
    assert pq.read_table(path).equals(table)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_both_versions_are_read(tmp_path: Path, version: str) -> None:
    """DuckDB, which shares no code with our writer, gets the same rows out of either."""
    table = reference_rows(4000)
    shape = ParquetFormat(data_page_version=version, row_group_rows=1500)
    (path,) = write(tmp_path, table, format=shape)
    assert read_duckdb([path]).cast(table.schema).equals(table)


def test_bloom_filter_finds_and_excludes(tmp_path: Path) -> None:
    """A value that is there is never excluded, others nearly always, in each row group."""
    if not supported("bloom_filter_options"):
        pytest.skip(f"pyarrow {pa.__version__} writes no Bloom filters")
    table = pa.table({"key": [f"key {n}" for n in range(3000)], "n": range(3000)})
    shape = ParquetFormat(bloom_filters=("key",), row_group_rows=1000)
    (path,) = write(tmp_path, table, format=shape)
    probe = f"select bloom_filter_excludes from parquet_bloom_probe('{path}', 'key', '{{}}')"
    assert in_duckdb(probe.format("key 1500")) == [(True,), (False,), (True,)]
    strangers = [in_duckdb(probe.format(f"stranger {n}")) for n in range(20)]
    assert sum(excluded for found in strangers for (excluded,) in found) > 50
    found = in_duckdb(
        f"select path_in_schema, bloom_filter_length > 0 from parquet_metadata('{path}')"
    )
    assert set(found) == {("key", True), ("n", None)}


def test_types_are_those_that_all_readers_know(tmp_path: Path) -> None:
    """Decimals up to 18 digits are integers, moments 64-bit integers of milli- or microseconds."""
    (path,) = write(tmp_path, typed_rows())
    found = {
        name: (kind, logical or "")
        for name, kind, logical in in_duckdb(
            f"select name, type, logical_type from parquet_schema('{path}') where num_children is null"
        )
    }
    assert {name: kind for name, (kind, _) in found.items()} == {
        "whole": "INT64",
        "small": "INT32",
        "money": "INT64",
        "wide": "FIXED_LEN_BYTE_ARRAY",
        "ratio": "DOUBLE",
        "flag": "BOOLEAN",
        "day": "INT32",
        "local": "INT64",
        "second": "INT64",
        "instant": "INT64",
        "text": "BYTE_ARRAY",
        "raw": "BYTE_ARRAY",
    }
    assert "MICROS" in found["local"][1]
    assert "MILLIS" in found["second"][1]


def group_rows(path: Path) -> list[int]:
    """Return the rows of each row group."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def test_usual_row_group_has_32_mib(tmp_path: Path) -> None:
    """Without options a row group has 32 MiB in memory, or a million rows."""
    wide = pa.array([bytes(1 << 20)] * 40, pa.binary())
    (path,) = write(tmp_path, pa.table({"lob": wide}), 40)
    assert group_rows(path) == [32, 8]
    (path,) = write(tmp_path, pa.table({"n": pa.nulls(1_100_000, pa.bool_())}), 1_100_000)
    assert group_rows(path) == [1_048_576, 51_424]


VALUES = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=20),
        "list": st.none() | st.lists(st.none() | st.text(max_size=5), max_size=4),
        "flag": st.none() | st.booleans(),
        "struct": st.none() | st.fixed_dictionaries({"b": st.binary(max_size=9)}),
    }
)
SCHEMA = pa.schema(
    [
        ("text", pa.large_string()),
        ("list", pa.list_(pa.string())),
        ("flag", pa.bool_()),
        ("struct", pa.struct([("b", pa.binary())])),
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(VALUES, min_size=1, max_size=40),
    cuts=st.lists(st.integers(1, 9), min_size=1),
    size=st.integers(1, 200),
    most=st.integers(1, 15),
)
def test_cuts_depend_on_rows_alone(
    rows: list[dict[str, object]], cuts: list[int], size: int, most: int
) -> None:
    """Any batches of the same rows, slices among them, give the same row groups; none is lost."""
    whole = pa.RecordBatch.from_pylist(rows, SCHEMA)
    pieces, start, turn = [], 0, 0
    while start < len(rows):
        pieces.append(whole.slice(start, cuts[turn % len(cuts)]))
        start, turn = start + cuts[turn % len(cuts)], turn + 1
    found = []
    for batches in ([whole], pieces):
        groups = RowGroups(most, size)
        done: list[list[pa.RecordBatch]] = [[]]
        for batch in batches:
            for piece, ends in groups.cut(batch):
                done[-1].append(piece)
                done.extend([[]] if ends else [])
        tables = [pa.Table.from_batches(group, SCHEMA) for group in done]
        found.append([table.num_rows for table in tables])
        assert pa.concat_tables(tables).to_pylist() == rows
    assert found[0] == found[1]
    assert max(found[0]) <= most


def ordered(*columns: SortColumn) -> ParquetFormat:
    return ParquetFormat(sorted_by=columns)


TABLE = pa.table(
    {
        "x": pa.array([{"y": 1}] * 6),
        "day": ["a", "a", "b", "b", "é", None],
        "price": pa.array([None, Decimal("2.5"), Decimal(-1), None, Decimal(7), Decimal(1)]),
    }
)


@pytest.mark.parametrize("batch_rows", [1, 2, 6])
def test_order_is_in_the_file(tmp_path: Path, batch_rows: int) -> None:
    """Each row group names its columns, counted as Parquet counts them, nested ones among them."""
    shape = ordered(SortColumn(name="day"))
    (path,) = write(tmp_path, TABLE, batch_rows, format=shape)
    assert pq.read_metadata(path).row_group(0).sorting_columns == (
        pq.SortingColumn(1, descending=False, nulls_first=False),
    )
    assert pq.read_table(path).equals(TABLE)


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ([SortColumn(name="day"), SortColumn(name="price", nulls_first=True)], 4),
        ([SortColumn(name="day"), SortColumn(name="price")], 2),
        ([SortColumn(name="day", nulls_first=True)], 6),
        ([SortColumn(name="day", descending=True)], 3),
        ([SortColumn(name="price", descending=True, nulls_first=True)], 4),
    ],
)
@pytest.mark.parametrize("batch_rows", [1, 2, 4, 6])
def test_other_order_is_refused(
    tmp_path: Path, columns: list[SortColumn], row: int, batch_rows: int
) -> None:
    """The first row out of order is named, in any batch, and no file is left."""
    writer = ParquetWriter(spec(tmp_path, format=ordered(*columns)), TABLE.schema, "t")

    def produce() -> None:
        for batch in TABLE.to_batches(max_chunksize=batch_rows):
            writer.write(batch)

    with pytest.raises(ValueNotRepresentable, match=rf"^row {row} is not after .*Next: "):
        produce()
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_value_without_an_order_is_refused(tmp_path: Path) -> None:
    """NaN comes neither before nor after a number."""
    table = pa.table({"f": [1.0, float("nan"), 2.0]})
    writer = ParquetWriter(spec(tmp_path, format=ordered(SortColumn(name="f"))), table.schema, "t")
    with pytest.raises(ValueNotRepresentable, match="row 2 "):
        writer.write(table.to_batches()[0])
    writer.abort()


@pytest.mark.parametrize(
    ("name", "said"), [("nope", "no column has the name 'nope'"), ("x", "no order")]
)
def test_impossible_order_is_refused(tmp_path: Path, name: str, said: str) -> None:
    """A column that is not there, or cannot be compared, is refused before a file is created."""
    with pytest.raises(FormatError, match=said):
        ParquetWriter(spec(tmp_path, format=ordered(SortColumn(name=name))), TABLE.schema, "t")
    assert not list(tmp_path.iterdir())
