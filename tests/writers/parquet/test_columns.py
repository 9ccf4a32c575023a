"""Encodings and codecs of the columns: by what the values of the first row group are like."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoders.parquet_files import read_duckdb, reference_rows, write

from writers.model import ParquetFormat


def chunks(path: Path) -> dict[str, Any]:
    """Return the metadata of each column of the first row group."""
    group = pq.read_metadata(path).row_group(0)
    return {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}


def test_columns_are_encoded_by_their_values(tmp_path: Path) -> None:
    """Repeating values get a dictionary, others a delta encoding, floating point stays plain."""
    (path,) = write(tmp_path, reference_rows(5000))
    group = pq.read_metadata(path).row_group(0)
    encodings = [set(group.column(i).encodings) for i in range(5)]
    assert encodings[0] == {"RLE", "DELTA_BYTE_ARRAY"}
    assert encodings[1] == encodings[2] == {"RLE", "DELTA_BINARY_PACKED"}
    assert "RLE_DICTIONARY" in encodings[3]
    assert encodings[4] == {"RLE", "PLAIN"}


def test_file_is_smaller_than_with_arrow_defaults(tmp_path: Path) -> None:
    """On rows like a real table's our choices beat pyarrow's own, at the same codec."""
    table = reference_rows(20_000)
    (path,) = write(tmp_path, table)
    pq.write_table(table, tmp_path / "plain.parquet", compression="zstd")
    assert path.stat().st_size < 0.95 * (tmp_path / "plain.parquet").stat().st_size


def many_rows() -> pa.Table:
    """Return enough rows for a trial, in columns that want different things."""
    chance = random.Random(11)
    rows = 70_000
    cents = [Decimal(chance.randrange(10**8)) / 100 for _ in range(rows)]
    return pa.table(
        {
            "paths": sorted(
                f"/data/sales/{chance.randrange(10**9):09d}/part-{chance.randrange(10**6)}"
                for _ in range(rows)
            ),
            "words": [chance.randbytes(6).hex() for _ in range(rows)],
            "cents": pa.array(cents, pa.decimal128(12, 2)),
            "serial": range(rows),
            "days": pa.array([number // 300 for number in range(rows)], pa.int32()),
            "far": pa.array([chance.choice((1, 10**17)) for _ in range(rows)], pa.int64()),
            "price": [chance.randrange(10**6) / 100 for _ in range(rows)],
        }
    )


@pytest.fixture(scope="module")
def tried() -> pa.Table:
    """Return those rows, made once."""
    return many_rows()


def test_trial_finds_what_the_types_do_not_tell(tmp_path: Path, tried: pa.Table) -> None:
    """Text has prefixes taken out where that is smaller; packed numbers have no codec behind.

    Lengths as deltas would be smaller yet: Spark up to 4.0.0 reads wrong text from them.
    """
    (path,) = write(tmp_path, tried, 30_000)
    found = chunks(path)
    assert "DELTA_BYTE_ARRAY" in found["paths"].encodings
    assert not any("DELTA_LENGTH_BYTE_ARRAY" in each.encodings for each in found.values())
    assert found["words"].compression == "ZSTD"
    assert "DELTA_BINARY_PACKED" in found["cents"].encodings
    assert found["cents"].compression == "UNCOMPRESSED"
    assert found["cents"].physical_type == "INT64"
    assert "RLE_DICTIONARY" in found["far"].encodings
    assert found["price"].compression == "ZSTD"
    assert pq.read_table(path).equals(tried)
    assert read_duckdb([path]).cast(tried.schema).equals(tried)


def test_byte_stream_split_is_for_those_who_ask(tmp_path: Path, tried: pa.Table) -> None:
    """Floating point goes byte by byte where the option allows it, and only there."""
    few = tried.select(["price"])
    sums = pa.table({"price": [number * 0.5 for number in range(70_000)]})
    (path,) = write(tmp_path, sums)
    assert chunks(path)["price"].encodings == ("RLE", "PLAIN")
    plain = path.stat().st_size
    (path,) = write(tmp_path, sums, format=ParquetFormat(byte_stream_split=True))
    assert "BYTE_STREAM_SPLIT" in chunks(path)["price"].encodings
    assert path.stat().st_size < plain / 2
    assert read_duckdb([path]).equals(sums)
    (path,) = write(tmp_path, few, format=ParquetFormat(byte_stream_split=True))
    assert read_duckdb([path]).equals(few)


def test_nested_columns_and_dots_keep_the_codec(tmp_path: Path) -> None:
    """Columns that are not tried are compressed like any other, and none takes another's options."""
    rows, chance = 70_000, random.Random(5)
    table = pa.table(
        {
            "a": pa.array([{"b": "some text"}] * rows),
            "a.b": pa.array(range(rows)),
            "list": pa.array([["x", "y"]] * rows),
            "n": pa.array([chance.randrange(10**12) for _ in range(rows)], pa.int64()),
        }
    )
    (path,) = write(tmp_path, table, rows)
    group = pq.read_metadata(path).row_group(0)
    codecs = [group.column(i).compression for i in range(group.num_columns)]
    assert codecs == ["ZSTD", "ZSTD", "ZSTD", "UNCOMPRESSED"]
    assert pq.ParquetFile(path).read().equals(table)
