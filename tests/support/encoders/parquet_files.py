"""Tables written by our Parquet writer, and read back by readers of others."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from writers.model import Compression, OutputSpec, ParquetFormat
from writers.parquet.writer import ParquetWriter

ZSTD = Compression(codec="zstd")


def spec(directory: Path, **changes: Any) -> OutputSpec:
    """Return a Parquet spec with zstd and the changes asked for."""
    return OutputSpec(
        **{"directory": str(directory), "format": ParquetFormat(), "compression": ZSTD, **changes}
    )


def read_arrow(paths: list[Path]) -> pa.Table:
    """Read files with pyarrow."""
    return pa.concat_tables([pq.read_table(path) for path in paths])


def read_duckdb(paths: list[Path]) -> pa.Table:
    """Read files with DuckDB, whose reader shares no code with Arrow's."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("set timezone = 'UTC'")
        query = "from read_parquet($path)"
        tables = [
            connection.sql(query, params={"path": str(path)}).to_arrow_table() for path in paths
        ]
    return pa.concat_tables(tables)


def write(directory: Path, table: pa.Table, batch_rows: int = 1000, **changes: Any) -> list[Path]:
    """Write a table in batches and return its files."""
    writer = ParquetWriter(spec(directory, **changes), table.schema, "t")
    for batch in table.to_batches(max_chunksize=batch_rows):
        writer.write(batch)
    return [directory / file.path for file in writer.close()]


def reference_rows(rows: int) -> pa.Table:
    """Return rows as in a real table: text, decimals and dates, nearly all distinct."""
    chance = random.Random(7)
    return pa.table(
        {
            "name": [chance.randbytes(7).hex() for _ in range(rows)],
            "number": pa.array(
                [Decimal(chance.randrange(10**12)) for _ in range(rows)], pa.decimal128(12, 0)
            ),
            "stamp": pa.array(
                [chance.randrange(-(10**13), 10**14) * 1000 for _ in range(rows)], pa.int64()
            ).cast(pa.timestamp("us")),
            "kind": [f"kind {chance.randrange(50)}" for _ in range(rows)],
            "price": [chance.random() for _ in range(rows)],
        }
    )


def typed_rows() -> pa.Table:
    """Return rows of the types that every reader has to know."""
    moment = datetime(2024, 2, 29, 12, 30, 15, 250_000)
    return pa.table(
        {
            "whole": pa.array([1, None, -(2**63)], pa.int64()),
            "small": pa.array([1, None, -(2**15)], pa.int16()),
            "money": pa.array([Decimal("1.50"), None, Decimal("-9999999999.99")]),
            "wide": pa.array([Decimal(10**37), None, Decimal(-1)], pa.decimal128(38, 0)),
            "ratio": [0.1, None, float("-inf")],
            "flag": [True, None, False],
            "day": pa.array([date(1, 1, 1), None, date(9999, 12, 31)]),
            "local": pa.array([moment, None, datetime(9999, 12, 31)], pa.timestamp("us")),
            "second": pa.array([moment.replace(microsecond=0), None, None], pa.timestamp("s")),
            "instant": pa.array(
                [moment.replace(tzinfo=UTC), None, None], pa.timestamp("us", "UTC")
            ),
            "text": ["é", None, ""],
            "raw": [b"\x00\xff", None, b""],
        }
    )
