"""The published table of Oracle, checksums by STANDARD_HASH, and figures of a preflight."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from oracle import leg as oracle_leg
from oracle.leg import OracleLeg
from oracle_server.database import Database
from oracle_server.model import Column, Moment, Type
from oracle_server.samples import tables as samples
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


HASHED_ROWS = 64
NOT_HASHED = r"LONG|CLOB|NCLOB|BLOB|.*XMLTYPE|JSON|VECTOR"
"""Types that STANDARD_HASH does not take."""
ZONED = r"TIMESTAMP.* WITH TIME ZONE"
"""As text the name of the region is spelled as elsewhere, which Oracle cannot do."""


@pytest.fixture(scope="module", params=oracle_leg.legs())
def leg(request: pytest.FixtureRequest) -> Iterator[OracleLeg]:
    """One database for the module, with a table of every type."""
    with oracle_leg.opened(request.param) as found:
        database = Database()
        database.add_user("SCOTT", "tiger")
        without = [kind for kind in ("BOOLEAN", "JSON", "VECTOR") if not found.supports(kind)]
        table = samples.types_table(database, name="HASHED", rows=HASHED_ROWS, without=without)
        rows = [row for part in table.segments for _, row in part.view(database.scn).rows()]
        if found.is_real:
            rows = [tuple(0.0 if isinstance(v, float) and v == 0 else v for v in r) for r in rows]
        found.create("HASHED", table.columns, rows=rows)
        yield found


def answer(leg: OracleLeg, *arguments: str) -> dict[str, Any]:
    """Return the answer of a command."""
    text = command.run(*arguments, "--json", "--progress", "none", env=leg.environment)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("format", ["csv", *also(OTHER_ROUTES, "parquet")])
def test_oracle_computes_the_same_of_every_type(
    leg: OracleLeg, tmp_path: Path, format: str
) -> None:
    """During the run and later, for all types that STANDARD_HASH takes; the others are named."""
    manifest = answer(
        leg, "run", leg.url, "--table", "HASHED", "--to", str(tmp_path / "out"),
        "--format", format, "--verify", "source", "--parallelism", "1",
    )  # fmt: skip
    named = {text.partition(":")[0] for text in manifest["verified"]["not_compared"]}
    columns = manifest["columns"]
    expected = {
        column["name"]
        for column in columns
        if re.match(NOT_HASHED, column["source_type"])
        or (re.match(ZONED, column["source_type"]) and column["output_type"] == "string")
    }
    assert named == expected
    assert len(expected) < len(columns) / 2
    found = answer(leg, "verify", str(tmp_path / "out"), leg.url, "--level", "source")
    assert found["result"] == "ok"
    assert {text.partition(":")[0] for text in found["not_compared"]} == expected


PREFLIGHT_COLUMNS = (
    Column(name="ID", type=Type(name="NUMBER", precision=10, scale=0)),
    Column(name="PAD", type=Type(name="VARCHAR2", length=100)),
)


def test_the_way_to_the_database_is_measured(oracle: OracleLeg) -> None:
    """The round trip and the rates of the source are known."""
    oracle.create("PREFLIGHT", PREFLIGHT_COLUMNS)
    oracle.load(
        "PREFLIGHT", PREFLIGHT_COLUMNS, ((number, f"{number:0100d}") for number in range(2000))
    )
    oracle.settle()
    text = command.run(
        *("preflight", oracle.url, "--table", "PREFLIGHT", "--levels", "1", "--json"),
        *("--source-seconds", "30", "--without", "disk,encoder"),
        env=oracle.environment,
    )
    found = json.loads(text)
    (level,) = found["source"]["levels"]
    assert (level["parallelism"], level["rows"]) == (1, 2000)
    assert found["round_trip_seconds"] > 0
    assert found["encoder"] is None
    assert found["disks"] == []
