"""Pages, indexes, statistics, Bloom filters and metadata, by the eyes of several readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoders.parquet_files import read_duckdb, reference_rows, typed_rows, write

from writers.errors import FormatError
from writers.model import ParquetFormat
from writers.parquet.options import check_options, supported


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


def test_bloom_filter_needs_its_pyarrow() -> None:
    """A pyarrow that writes none is refused with the version that does; others take the option."""
    parquet = ParquetFormat(bloom_filters=("key",))
    if supported("bloom_filter_options"):
        check_options(parquet)
    else:
        with pytest.raises(FormatError, match="pyarrow 24"):
            check_options(parquet)


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


def test_metadata_of_fields_and_file_is_kept(tmp_path: Path) -> None:
    """What a source tells of its columns and rows stands in the file, for pyarrow and others."""
    schema = pa.schema(
        [pa.field("n", pa.int64(), metadata={"source_type": "NUMBER(18)"})],
        metadata={"unloader:table": "ORDERS"},
    )
    (path,) = write(tmp_path, pa.table({"n": [1]}, schema=schema))
    found = pq.read_schema(path)
    assert found.field("n").metadata[b"source_type"] == b"NUMBER(18)"
    assert found.metadata == {b"unloader:table": b"ORDERS"}
    told = dict(in_duckdb(f"select key, value from parquet_kv_metadata('{path}')"))
    assert told[b"unloader:table"] == b"ORDERS"
