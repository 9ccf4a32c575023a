"""Parquet: exact values, impossible options refused, and no footer on what is given up."""

from __future__ import annotations

import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoders.parquet_files import read_arrow, read_duckdb, reference_rows, spec, write
from long_tests import OTHER_ROUTES, also

from writers.errors import FormatError, SchemaMismatch, ValueNotRepresentable, WriteError
from writers.model import Compression, ParquetFormat, TextFormat
from writers.parquet.writer import ParquetWriter
from writers.testing import check_writer


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
    [
        ("native", read_arrow),
        *also(OTHER_ROUTES, ("plain", read_arrow), ("native", read_duckdb)),
    ],
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
    """Files end behind the row group that reaches the size, are numbered, and miss no row."""
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


def test_full_disk_while_writing(full_disk: Path) -> None:
    """After a failed write abort removes the file and the last thread."""
    table = reference_rows(40_000)
    changes = {"buffer_bytes": 10_000, "format": ParquetFormat(row_group_rows=5000)}
    writer = ParquetWriter(spec(full_disk, **changes), table.schema, "t")

    def produce() -> None:
        for _ in range(3):
            writer.write(table.to_batches()[0])

    with pytest.raises(WriteError, match="Next: "):
        produce()
    writer.abort()
    assert not list(full_disk.iterdir())
