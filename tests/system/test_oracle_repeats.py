"""Rows of repeated values, which the wire leaves out: each comes back where it was left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from long_tests import OTHER_ROUTES
from oracle import leg as oracle_leg
from oracle.leg import OracleLeg
from oracle_server.model import Column, Moment, Type
from processes import command

ROWS = int(os.environ.get("UNLOADER_TEST_ORACLE_REPEATS", "60000"))
"""The nightly run sets a million."""
TABLE = "REPEATS"

_TEXT = Type(name="VARCHAR2", length=30)
COLUMNS = (
    Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
    Column(name="CONSTANT", type=_TEXT),
    Column(name="NOTHING", type=_TEXT),
    Column(name="PAIRS", type=Type(name="NUMBER", precision=18, scale=0)),
    Column(name="THIRDS", type=Type(name="NUMBER", precision=12, scale=2)),
    Column(name="LONG_RUNS", type=_TEXT),
    Column(name="NULL_RUNS", type=_TEXT),
    Column(name="ALTERNATES", type=Type(name="CHAR", length=3)),
    Column(name="OR_NULL", type=Type(name="NUMBER", precision=9, scale=0)),
    Column(name="DAYS", type=Type(name="DATE")),
    *(Column(name=f"TURN_{n}", type=Type(name="NUMBER", precision=9, scale=0)) for n in range(7)),
)
_FIRST_DAY = datetime(1970, 1, 1)

DUCKDB_TYPES = {"VARCHAR2": "VARCHAR", "CHAR": "VARCHAR", "DATE": "TIMESTAMP", "NUMBER": "BIGINT"}


def _values(n: int) -> tuple[Any, ...]:
    """Return a row; of the last seven columns exactly one differs from the row before.

    Runs end at numbers that share no factor with sizes of fetches, so that they begin and end
    everywhere in a reply.
    """
    return (
        n,
        "the same in every row",
        None,
        n // 2,
        n // 3,
        f"run {n // 997}",
        None if n // 61 % 3 == 0 else f"value {n // 183}",
        "odd" if n % 2 else "ev ",
        None if n % 2 else n // 8,
        n // 101 % 40_000,
        *((n + 6 - turn) // 7 for turn in range(7)),
    )


def _rows() -> Iterator[tuple[Any, ...]]:
    for n in range(ROWS):
        row = list(_values(n))
        day = _FIRST_DAY + timedelta(days=row[9])
        row[9] = Moment(day.year, day.month, day.day)
        yield tuple(row)


def _source() -> pa.Table:
    """Return the rows as Arrow, for DuckDB to compare with."""
    columns = zip(*map(_values, range(ROWS)), strict=True)
    arrays = [pa.array(column) for column in columns]
    arrays[2] = arrays[2].cast(pa.string())
    return pa.table(arrays, names=[column.name for column in COLUMNS])


@pytest.fixture(scope="module", params=oracle_leg.legs())
def leg(request: pytest.FixtureRequest) -> Iterator[OracleLeg]:
    """The table of repeats in Oracle, in one segment."""
    with oracle_leg.opened(request.param) as found:
        found.create(TABLE, COLUMNS)
        found.load(TABLE, COLUMNS, _rows())
        yield found


@pytest.fixture(scope="module")
def source() -> Iterator[duckdb.DuckDBPyConnection]:
    """The same rows in DuckDB, as the view `source`."""
    with duckdb.connect() as connection:
        connection.register("raw", _source())
        connection.execute(
            "CREATE TABLE source AS SELECT * REPLACE (DATE '1970-01-01' + DAYS::INTEGER AS DAYS) "
            "FROM raw"
        )
        yield connection


def _unload(leg: OracleLeg, to: Path, *options: str) -> None:
    command.run(
        "run", leg.url, "--table", TABLE, "--to", str(to), "--parallelism", "2",
        "--progress", "none", *options, env=leg.environment,
    )  # fmt: skip
    assert command.manifest_of(to)["totals"]["rows"] == ROWS


def _check(source: duckdb.DuckDBPyConnection, files: str, names: tuple[str, ...]) -> None:
    """Compare files with the source, rows that occur twice counted twice."""
    chosen = ", ".join(names)
    cast = ", ".join(
        f"{column.name}::{_duckdb_type(column)} AS {column.name}"
        for column in COLUMNS
        if column.name in names
    )
    ours = f"SELECT {cast} FROM {files}"
    theirs = f"SELECT {cast} FROM (SELECT {chosen} FROM source)"
    for left, right in ((ours, theirs), (theirs, ours)):
        found = source.execute(f"SELECT count(*) FROM ({left} EXCEPT ALL {right})").fetchone()
        assert found == (0,)


def _duckdb_type(column: Column) -> str:
    return "DECIMAL(12,2)" if column.type.scale == 2 else DUCKDB_TYPES[column.type.name]


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("fetch", ["arrow", "tuples", "native"])
def test_repeats_in_parquet(
    leg: OracleLeg, source: duckdb.DuckDBPyConnection, tmp_path: Path, fetch: str
) -> None:
    """Every row has the values it had, where all, some or none of them repeat."""
    to = tmp_path / "out"
    # A small fetch makes many replies, and runs that go on from one to the next.
    _unload(leg, to, "--format", "parquet", "--fetch", fetch, "--fetch-memory", "1MiB")
    _check(source, f"read_parquet('{to}/*.parquet')", tuple(c.name for c in COLUMNS))


@pytest.mark.long(OTHER_ROUTES)
def test_reading_by_ranges_has_the_same_rows(
    leg: OracleLeg, source: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Units that begin anywhere in a run have it from its first row on."""
    to = tmp_path / "out"
    _unload(leg, to, "--split", "range", "--unit-bytes", "1MiB")
    assert len(command.manifest_of(to)["units"]) > 4
    files = f"read_csv('{to}/*.csv', all_varchar = true, header = true)"
    _check(source, files, tuple(c.name for c in COLUMNS))
