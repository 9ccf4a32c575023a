"""The published table HASH_PART_0160: the same records as published, for any parallelism."""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from oracle import leg as oracle_leg
from oracle.leg import OracleLeg
from oracle_server.model import Column, Moment, Type
from oracle_server.samples.tables import reference_table
from processes import command

from unloader.sources.duckdb.reference import COLUMNS, build_reference_table

TABLE = "HASH_PART_0160"
PARTITIONS = 32
ROWS = int(os.environ.get("UNLOADER_TEST_ORACLE_ROWS", "20000"))

_TYPES = (
    Type(name="VARCHAR2", length=15),
    Type(name="DATE"),
    Type(name="NUMBER", precision=13, scale=0),
    Type(name="VARCHAR2", length=15),
    Type(name="NUMBER", precision=12, scale=2),
    Type(name="DATE"),
    Type(name="CHAR", length=8),
    Type(name="VARCHAR2", length=10),
    Type(name="NUMBER", precision=15, scale=0),
    Type(name="VARCHAR2", length=20),
)
REFERENCE_COLUMNS = tuple(
    Column(name=column.name, type=kind) for column, kind in zip(COLUMNS, _TYPES, strict=True)
)

PUBLISHED = (
    b"0000000148~~Foqvre~~,~~21530424004401~~,280731594835,~~dlG9HSUf~~,748766.98,"
    b"~~23240607215642~~,~~k7037   ~~,~~FFw5hZ12W~~,768478998939019,~~9LRhSbMaR9fBv~~,\r\n",
    b"0000000159~~1cCQM39g~~,~~38441127025731~~,2379760955898,~~EMLo6HgNWq~~,996422.43,"
    b"~~28320220041621~~,~~ikKDhPZ ~~,~~hDWNzNWpV~~,793767313694761,~~HR3Z3krExrMuKMu7Od2~~,\r\n",
    b"0000000160~~sQ5QpcWkOu~~,~~35821117194854~~,3681160762725,~~rfBYL7IYdN5go~~,622915.16,"
    b"~~19750226100019~~,~~oM4LJJ  ~~,~~MKExk1~~,629023003075868,~~2VXfksb1aVlUcoBfad~~,\r\n",
)
"""The three records of an unload of this table that were published in 2015."""

PUBLISHED_ROWS: tuple[tuple[Any, ...], ...] = (
    (
        "Foqvre", Moment(2153, 4, 24, 0, 44, 1), 280731594835, "dlG9HSUf", Decimal("748766.98"),
        Moment(2324, 6, 7, 21, 56, 42), "k7037", "FFw5hZ12W", 768478998939019, "9LRhSbMaR9fBv",
    ),
    (
        "1cCQM39g", Moment(3844, 11, 27, 2, 57, 31), 2379760955898, "EMLo6HgNWq",
        Decimal("996422.43"), Moment(2832, 2, 20, 4, 16, 21), "ikKDhPZ", "hDWNzNWpV",
        793767313694761, "HR3Z3krExrMuKMu7Od2",
    ),
    (
        "sQ5QpcWkOu", Moment(3582, 11, 17, 19, 48, 54), 3681160762725, "rfBYL7IYdN5go",
        Decimal("622915.16"), Moment(1975, 2, 26, 10, 0, 19), "oM4LJJ", "MKExk1",
        629023003075868, "2VXfksb1aVlUcoBfad",
    ),
)  # fmt: skip
"""Their values, read off by hand."""


@pytest.fixture(scope="module")
def reference_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The DuckDB file that the table's rows come from."""
    path = tmp_path_factory.mktemp("reference") / "reference.duckdb"
    build_reference_table(path, ROWS, partitions=PARTITIONS, table=TABLE, stop=lambda: False)
    return path


@pytest.fixture(scope="module", params=oracle_leg.legs())
def reference(request: pytest.FixtureRequest, reference_file: Path) -> Iterator[OracleLeg]:
    """The reference table in Oracle."""
    with oracle_leg.opened(request.param) as leg:
        if leg.is_real:
            names = ", ".join(f"PARTITION {TABLE}_P{n:02d}" for n in range(1, PARTITIONS + 1))
            leg.create(TABLE, REFERENCE_COLUMNS, tail=f"PARTITION BY HASH (REF_KEY) ({names})")
            leg.load(TABLE, REFERENCE_COLUMNS, _rows(reference_file))
        else:
            reference_table(leg.database, ROWS, PARTITIONS)
        yield leg


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute(f"FROM {TABLE}")
        while batch := found.fetchmany(10_000):
            yield from batch


def _records(content: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(content):
        end = at + 10 + int(content[at : at + 10])
        found.append(content[at:end])
        at = end
    return sorted(found)


@pytest.mark.parametrize("fetch", ["arrow", "tuples", "native"])
def test_published_records_come_out_as_published(
    reference: OracleLeg, tmp_path: Path, fetch: str
) -> None:
    """The values of the three published records make the published bytes."""
    table = f"PUBLISHED_{fetch.upper()}"
    reference.create(table, REFERENCE_COLUMNS, rows=PUBLISHED_ROWS)
    to = tmp_path / "out"
    command.run(
        "run", reference.url, "--table", table, "--to", str(to), "--dialect", "sqlldr-var",
        "--fetch", fetch, "--file-per", "table", "--progress", "none", env=reference.environment,
    )  # fmt: skip
    (file,) = to.glob("*.csv")
    assert _records(file.read_bytes()) == sorted(PUBLISHED)
