"""The contract of a source, kept by DuckDB."""

from __future__ import annotations

import math
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from long_tests import OTHER_ROUTES

from partition_planner.model import PlanLimits
from partition_planner.planner import plan
from unloader.errors import SourceError
from unloader.model import Extract, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.duckdb.source import DuckDBSource
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds
from unloader.sources.testing import check_source

TYPES = {
    "k": "BIGINT",
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "unsigned": "UBIGINT",
    "huge": "HUGEINT",
    "single": "FLOAT",
    "double": "DOUBLE",
    "money": "DECIMAL(12,2)",
    "wide": "DECIMAL(38,10)",
    "text": "VARCHAR",
    "bytes": "BLOB",
    "day": "DATE",
    "clock": "TIME",
    "moment": "TIMESTAMP",
    "seconds": "TIMESTAMP_S",
    "nanos": "TIMESTAMP_NS",
    "zoned": "TIMESTAMPTZ",
    "span": "INTERVAL",
    "id": "UUID",
    "colour": "ENUM('red', 'green')",
    "list": "INTEGER[]",
    "record": "STRUCT(a INTEGER, b VARCHAR)",
    "bits": "BIT",
}

LITERALS = [
    (
        "9223372036854775807", "true", "-128", "18446744073709551615",
        "170141183460469231731687303715884105727", "1.5", "5e-324", "-9999999999.99",
        "9999999999999999999999999999.9999999999", "'ü😀' || chr(10) || '\",;'",
        "'\\x00\\xFF'::BLOB", "'0001-01-01'", "'23:59:59.999999'", "'9999-12-31 23:59:59.999999'",
        "'1969-12-31 23:59:59'", "'1677-09-22 00:00:00.000000001'", "'2024-03-31 01:30:00+02'",
        "INTERVAL '13 months 2 days'", "'00000000-0000-0000-0000-000000000001'", "'red'",
        "[1, NULL]", "{'a': 1, 'b': ''}", "'0101'",
    ),
    ("2", *["NULL"] * 22),
    (
        "-9223372036854775808", "false", "127", "0", "-1", "'-inf'", "'inf'", "0", "-0.0000000001",
        "''", "''::BLOB", "'9999-12-31'", "'00:00:00'", "'0001-01-01 00:00:00'",
        "'2000-02-29 12:00:00'", "'2262-04-11 23:47:16.854775806'", "'1900-01-01 00:00:00+00'",
        "INTERVAL '-1 microsecond'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'green'", "[]",
        "{'a': NULL, 'b': NULL}", "'1'",
    ),
]  # fmt: skip

EXPECTED = [
    (
        2**63 - 1, True, -128, 2**64 - 1, str(2**127 - 1), 1.5, 5e-324, Decimal("-9999999999.99"),
        Decimal("9999999999999999999999999999.9999999999"), 'ü😀\n",;', b"\x00\xff",
        date(1, 1, 1), time(23, 59, 59, 999999), datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(1969, 12, 31, 23, 59, 59), "1677-09-22 00:00:00.000000001",
        datetime(2024, 3, 30, 23, 30, tzinfo=UTC), "1 year 1 month 2 days",
        "00000000-0000-0000-0000-000000000001", "red", [1, None], {"a": 1, "b": ""}, "0101",
    ),
    (2, *[None] * 22),
    (
        -(2**63), False, 127, 0, "-1", -math.inf, math.inf, Decimal("0.00"),
        Decimal("-0.0000000001"), "", b"", date(9999, 12, 31), time(0, 0),
        datetime(1, 1, 1), datetime(2000, 2, 29, 12), "2262-04-11 23:47:16.854775806",
        datetime(1900, 1, 1, tzinfo=UTC), "-00:00:00.000001",
        "ffffffff-ffff-ffff-ffff-ffffffffffff", "green", [], {"a": None, "b": None}, "1",
    ),
]  # fmt: skip


def spec_of(path: Path) -> SourceSpec:
    """Return the spec of a file."""
    return SourceSpec(kind="duckdb", location=f"duckdb://{path}")


def test_contract_of_many_types(tmp_path: Path) -> None:
    """A table with a column of almost every type, NULLs and edges in each, keeps the contract."""
    path = tmp_path / "data.db"
    columns = ", ".join(f'"{name}" {kind}' for name, kind in TYPES.items())
    rows = ", ".join(f"({', '.join(row)})" for row in LITERALS)
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        connection.execute(f"INSERT INTO t VALUES {rows}")
        connection.execute("CREATE TABLE vacant (a INTEGER, b VARCHAR)")

    def writable() -> None:
        duckdb.connect(str(path)).close()

    check_source(
        DuckDBSource(),
        spec_of(path),
        parse_table("t"),
        EXPECTED,
        empty=parse_table("vacant"),
        after_close=writable,
    )


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("partitions", [0, 5])
def test_contract_of_a_long_table(tmp_path: Path, partitions: int) -> None:
    """A table of several row groups keeps the contract, with a map of partitions or without."""
    path = tmp_path / "data.db"
    count = 50_000
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            'CREATE SCHEMA s; CREATE TABLE s."Long Table" AS '
            f"SELECT range AS k, nullif('row ' || range, 'row 7') AS v FROM range({count})"
        )
        if partitions:
            size = count // partitions
            connection.execute(
                "CREATE TABLE unloader_partitions AS SELECT 's' AS table_schema, "
                "'Long Table' AS table_name, 'p' || range AS partition_name, range AS position, "
                f"range * {size} AS first_rowid, range * {size} + {size - 1} AS last_rowid "
                f"FROM range({partitions})"
            )
    rows = [(key, None if key == 7 else f"row {key}") for key in range(count)]
    check_source(DuckDBSource(), spec_of(path), parse_table('s."Long Table"'), rows)


def test_contract_of_a_view(tmp_path: Path) -> None:
    """A view whose columns need quotes keeps the contract."""
    path = tmp_path / "data.db"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            'CREATE VIEW v AS SELECT range AS "from", range::DECIMAL(5,1) AS "a ""b""" '
            "FROM range(9)"
        )
    rows = [(key, Decimal(f"{key}.0")) for key in range(9)]
    check_source(DuckDBSource(), spec_of(path), parse_table("v"), rows)


@pytest.mark.parametrize("second", ["a", "A"])
def test_a_query_with_two_columns_of_one_name_is_refused(tmp_path: Path, second: str) -> None:
    """DuckDB would rename the second one without a word, and so would the file's header."""
    path = tmp_path / "data.db"
    duckdb.connect(str(path)).close()
    with closing(DuckDBSource().open_catalog(spec_of(path))) as catalog:
        with pytest.raises(SourceError, match="two columns of the query are named 'a'") as caught:
            catalog.describe_query(f"SELECT 1 AS a, 2 AS {second}")
        assert "with AS" in caught.value.hint
        assert len(catalog.describe_query("SELECT 1 AS a, 2 AS b").columns) == 2


def read_whole(path: Path) -> list[pa.RecordBatch]:
    """Return the batches of table t, read as one unit."""
    with closing(DuckDBSource().open_catalog(spec_of(path))) as catalog:
        snapshot, table = catalog.snapshot("snapshot"), catalog.describe(parse_table("t"))
        projection = project(catalog, table, None, (OutputNeeds(text=None),))
    extract = Extract(
        source=spec_of(path),
        snapshot=snapshot,
        table=table,
        query=None,
        where=None,
        projection=projection,
    )
    (unit,) = plan(table, PlanLimits(parallelism=1, split="none")).units
    with closing(DuckDBSource().open_reader(spec_of(path), snapshot)) as reader:
        return list(reader.batches(extract, *unit.pieces, batch_bytes=1 << 20))


def test_wide_values_behind_narrow_ones(tmp_path: Path) -> None:
    """Where values outgrow the cap of a scan in its middle, each row still comes once, in order."""
    path, narrow, wide = tmp_path / "data.db", 20_000, 600
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT range AS k, repeat('x', CASE WHEN range < "
            f"{narrow} THEN 1 ELSE 100000 END) AS v FROM range({narrow + wide})"
        )
    batches = read_whole(path)
    assert [key for batch in batches for key in batch.column(0).to_pylist()] == [
        *range(narrow + wide)
    ]


def test_many_columns_do_not_make_small_batches(tmp_path: Path) -> None:
    """A scan holds blocks of each column, and its cap has room for all of them."""
    path, rows = tmp_path / "data.db", 20_000
    columns = ", ".join(f"md5((range + {at})::VARCHAR) AS c{at}" for at in range(150))
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range({rows})")
    sizes = [batch.num_rows for batch in read_whole(path)]
    assert sum(sizes) == rows
    assert max(sizes) > 64
