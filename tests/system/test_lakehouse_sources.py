"""Tables of servers become tables of a lakehouse: two readers find the values of the server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from lakehouse.catalogs import Lake, rows_of_files, rows_of_log
from oracle.leg import OracleLeg
from oracle_server.model import Column, Moment, Type
from processes import command

Rows = list[tuple[Any, ...]]

ORACLE = (
    Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
    Column(name="PRICE", type=Type(name="NUMBER", precision=20, scale=5)),
    Column(name="NAME", type=Type(name="VARCHAR2", length=40, in_chars=True)),
    Column(name="MADE", type=Type(name="DATE")),
    Column(name="SEEN", type=Type(name="TIMESTAMP", scale=6)),
    Column(name="RATIO", type=Type(name="BINARY_DOUBLE")),
    Column(name="KEY", type=Type(name="RAW", length=16)),
)
OF_ORACLE: Rows = [
    (1, Decimal("123456789012345.67891"), "nörd 😀", (2026, 3, 29, 1, 30, 59, 0),
     (1969, 12, 31, 23, 59, 59, 999_999), 0.1, b"\x00\xff"),
    (2, Decimal("-0.00001"), " ", (1, 1, 1, 0, 0, 0, 0), (9999, 12, 31, 23, 59, 59, 123_456),
     -1.5, b"\x01"),
    (3, None, None, None, None, None, None),
]  # fmt: skip

POSTGRES = """
CREATE TABLE kinds (id bigint, price numeric(20, 5), name text, day date, at timestamp,
                    zoned timestamptz, hour time, flag boolean, raw bytea);
INSERT INTO kinds VALUES
 (1, 123456789012345.67891, 'nörd 😀', '2026-03-29', '1969-12-31 23:59:59.999999',
  '2026-03-29 01:30:00.000001+00', '23:59:59.999999', true, '\\x00ff'),
 (2, -0.00001, '', '0001-01-01', '9999-12-31 23:59:59.123456', '0001-01-02 00:00:00+00',
  '00:00:00', false, ''),
 (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
OF_POSTGRES: Rows = [
    (1, Decimal("123456789012345.67891"), "nörd 😀", date(2026, 3, 29),
     datetime(1969, 12, 31, 23, 59, 59, 999_999),
     datetime(2026, 3, 29, 1, 30, 0, 1, UTC), "23:59:59.999999", True,
     b"\x00\xff"),
    (2, Decimal("-0.00001"), "", date(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 123_456),
     datetime(1, 1, 2, tzinfo=UTC), "00:00:00", False, b""),
    (3, None, None, None, None, None, None, None, None),
]  # fmt: skip


def check_iceberg(made: Lake, wanted: Rows) -> None:
    """Compare what pyiceberg and DuckDB read from the table."""
    table = made.table("t")
    assert _values(rows_of_files(table)) == _values(wanted)
    read = table.scan().to_arrow().to_pylist()
    assert sorted(_values([tuple(row.values()) for row in read])) == sorted(_values(wanted))


def check_delta(root: Path, wanted: Rows) -> None:
    """Compare what delta-rs' own engine, polars and DuckDB read from the table."""
    import polars
    from deltalake import DeltaTable, QueryBuilder

    assert _values(rows_of_log(root)) == _values(wanted)
    table = DeltaTable(str(root))
    engine = QueryBuilder().register("t", table)
    found = engine.execute("SELECT * FROM t").read_all()
    columns = [column.to_pylist() for column in found.columns]
    assert sorted(_values(list(zip(*columns, strict=True)))) == sorted(_values(wanted))
    assert sorted(_values(polars.read_delta(str(root)).rows())) == sorted(_values(wanted))


def _values(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [
        [
            str(value.astimezone(UTC)) if getattr(value, "tzinfo", None) else repr(value)
            for value in row
        ]
        for row in rows
    ]


@pytest.mark.long("runs into tables of a lakehouse")
def test_oracle(oracle: OracleLeg, the_lake: Lake, tmp_path: Path) -> None:
    """DATE has no fraction of a second, and is a timestamp of the table as the others are."""
    moments = {"DATE", "TIMESTAMP"}
    oracle.create(
        "KINDS",
        ORACLE,
        rows=[
            tuple(
                Moment(*value[:6], nanos=value[6] * 1000)
                if column.type.name in moments and value is not None
                else value
                for column, value in zip(ORACLE, row, strict=True)
            )
            for row in OF_ORACLE
        ],
    )
    env = {**the_lake.env, **oracle.environment}
    asked = ("run", oracle.url, "--table", "KINDS", "--format", "parquet", "--verify", "source")
    command.run(*asked, "--to", "iceberg://lake/ns.t", env=env)
    wanted = [
        tuple(datetime(*value) if isinstance(value, tuple) else value for value in row)
        for row in OF_ORACLE
    ]
    check_iceberg(the_lake, wanted)
    assert [str(each.field_type) for each in the_lake.table("t").schema().fields] == [
        *("int", "decimal(20, 5)", "string", "timestamp", "timestamp", "double", "binary")
    ]
    properties = the_lake.table("t").current_snapshot().summary.additional_properties
    assert properties["unloader.snapshot-kind"] == "scn"
    command.run(*asked, "--to", f"delta:{tmp_path / 'd'}", env=env)
    check_delta(tmp_path / "d", wanted)


@pytest.mark.long("runs into tables of a lakehouse")
def test_postgres(postgres: Any, the_lake: Lake, tmp_path: Path) -> None:
    """A time of day is text there, as in any file: it may be 24:00:00."""
    url = postgres.database("lakehouse")
    postgres.run(POSTGRES, url=url)
    asked = ("run", url, "--table", "kinds", "--format", "parquet", "--verify", "source")
    command.run(*asked, "--to", "iceberg://lake/ns.t")
    check_iceberg(the_lake, OF_POSTGRES)
    command.run(*asked, "--to", f"delta:{tmp_path / 'd'}")
    check_delta(tmp_path / "d", OF_POSTGRES)
