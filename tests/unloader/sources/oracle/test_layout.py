"""Where rows lie: every rung of the ladder, and that units of each have every row once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from msgspec.structs import replace
from oracle.leg import ID_AND_NAME, NUMBER, TEXT, database, rows, source
from oracle_server import Fault, OracleServer
from oracle_server.data.tables import PartitionSpec
from oracle_server.model import Column, Moment, Type

from partition_planner.model import KeyRange, PlanLimits, RowRange, TableInfo
from partition_planner.planner import plan
from unloader.model import Extract, Projection
from unloader.request.names import parse_table
from unloader.sources.oracle.catalog import OracleCatalog
from unloader.sources.oracle.layout import key_literal
from unloader.sources.oracle.source import OracleSource
from unloader.sources.oracle.statement import selector_statement

ROWS = 3000
PARTS = tuple(PartitionSpec(name=f"P{number}") for number in range(4))


@pytest.fixture
def server() -> Iterator[OracleServer]:
    """A server with the users SCOTT and HR."""
    with OracleServer(database()) as running:
        yield running


@pytest.fixture
def catalog(server: OracleServer, tmp_path: Path) -> Iterator[OracleCatalog]:
    """SCOTT's catalog."""
    opened = OracleSource().open_catalog(source(server, tmp_path))
    yield opened
    opened.close()


def selectors(
    catalog: OracleCatalog, table: TableInfo, split: str = "range", unit_bytes: int = 24_576
) -> list[Any]:
    """Return the selectors of a plan after checking that its units have every row just once."""
    limits = PlanLimits(parallelism=4, split=split, unit_bytes=unit_bytes)
    selectors = plan(table, limits).selectors
    extract = Extract(
        source=catalog._spec,
        snapshot=catalog.snapshot("snapshot"),
        table=table,
        query=None,
        where=None,
        projection=Projection(columns=(), route="arrow", schema=""),
    )
    column = f'"{table.columns[0].name}"'
    found = [
        row
        for selector in selectors
        for row in catalog._session.run(selector_statement(column, extract, selector))
    ]
    assert len(found) == catalog.count(extract)
    assert len(set(found)) == len(found)
    return list(selectors)


def test_extents_of_a_table(server: OracleServer, catalog: OracleCatalog) -> None:
    """With DBA_EXTENTS ranges are cut along the real extents, with known sizes."""
    server.database.privileges.grant("SCOTT", "DBA_EXTENTS")
    server.database.create_table("SCOTT", "T", columns=ID_AND_NAME, rows=rows(ROWS))
    table = catalog.describe(parse_table("T"))
    assert table.ranges_from == "DBA_EXTENTS"
    blocks = sum(extent.addresses for extent in table.extents)
    assert table.bytes == blocks * 8192
    assert len(table.extents) > 1
    found = selectors(catalog, table)
    assert len(found) > 8
    assert all(isinstance(each, RowRange) and each.object_id for each in found)
    missing = catalog.missing_privileges(table)
    assert not any("EXTENTS" in each for each in missing)


def test_sampled_blocks(server: OracleServer, catalog: OracleCatalog) -> None:
    """Without it a sample of the blocks serves as well, the same one each time, and is noted."""
    server.database.create_table("SCOTT", "T", columns=ID_AND_NAME, rows=rows(ROWS))
    table = catalog.describe(parse_table("T"))
    assert table.ranges_from == "SAMPLE BLOCK"
    assert table == catalog.describe(parse_table("T"))
    assert len(selectors(catalog, table)) > 8
    missing = " ".join(catalog.missing_privileges(table))
    assert "GRANT SELECT ON SYS.DBA_EXTENTS TO SCOTT" in missing


def test_a_guess_at_the_size_is_not_trusted(server: OracleServer, catalog: OracleCatalog) -> None:
    """Another user's table has but statistics: samples begin small and grow."""
    made = server.database
    made.create_table("HR", "T", columns=ID_AND_NAME, rows=rows(ROWS), rows_per_block=2)
    made.privileges.grant("SCOTT", "SELECT", on=("HR", "T"))
    made.privileges.grant("SCOTT", "FLASHBACK", on=("HR", "T"))
    table = catalog.describe(parse_table("HR.T"))
    samples = [each for each in server.sessions[-1].statements if "SAMPLE BLOCK" in each]
    percents = [float(each.rpartition("BLOCK (")[2].partition(")")[0]) for each in samples]
    assert len(percents) > 1
    assert percents == sorted(percents)
    assert table.ranges_from == "SAMPLE BLOCK"
    assert len(selectors(catalog, table)) > 8
    missing = " ".join(catalog.missing_privileges(table))
    assert "GRANT SELECT ON SYS.DBA_SEGMENTS TO SCOTT" in missing


def test_blocks_that_may_not_be_sampled(server: OracleServer, catalog: OracleCatalog) -> None:
    """Where sampling fails too, whole partitions are read, and the reason is reported."""
    server.database.create_table(
        "SCOTT", "T", columns=ID_AND_NAME, rows=rows(ROWS), partitions=PARTS
    )
    server.faults.add(Fault(kind="ora-01031", statement="SAMPLE BLOCK", times=None))
    table = catalog.describe(parse_table("T"))
    assert table.ranges_from is None
    assert not table.row_ranges
    assert all(part.bytes for part in table.partitions)
    assert len(selectors(catalog, table, split="auto")) == len(PARTS)
    missing = " ".join(catalog.missing_privileges(table))
    assert "blocks cannot be sampled" in missing


@pytest.mark.parametrize("right", ["DBA_EXTENTS", None])
@pytest.mark.parametrize("sub", [False, True])
def test_partitions(
    server: OracleServer, catalog: OracleCatalog, right: str | None, sub: bool
) -> None:
    """Leaves come in table order, each with its own segment, and can be cut on every rung."""
    if right:
        server.database.privileges.grant("SCOTT", right)
    parts = tuple(
        PartitionSpec(name=name, subpartitions=(f"{name}_B", f"{name}_A") if sub else ())
        for name in ("Z", "Mixed", "A/1")
    )
    server.database.create_table(
        "SCOTT", "T", columns=ID_AND_NAME, rows=rows(ROWS), partitions=parts
    )
    table = catalog.describe(parse_table("T"))
    names = [part.name for part in table.partitions]
    expected = (
        ["Z/Z_B", "Z/Z_A", "Mixed/Mixed_B", "Mixed/Mixed_A", '"A/1"/"A/1_B"', '"A/1"/"A/1_A"']
        if sub
        else ["Z", "Mixed", '"A/1"']
    )
    assert names == expected
    assert {part.kind for part in table.partitions} == {"subpartition" if sub else "partition"}
    assert len({part.object_id for part in table.partitions}) == len(names)
    assert all(part.extents for part in table.partitions)
    found = selectors(catalog, table)
    assert len(found) > len(names)
    assert len(selectors(catalog, table, split="partition")) == len(names)


def test_subpartitions_of_somebody_else(server: OracleServer, catalog: OracleCatalog) -> None:
    """Their segments' numbers are not in ALL_OBJECTS: DBA_OBJECTS has them, else sampled rows."""
    made = server.database
    parts = tuple(PartitionSpec(name=f"P{n}", subpartitions=(f"S{n}", f"R{n}")) for n in range(2))
    made.create_table("HR", "T", columns=ID_AND_NAME, rows=rows(ROWS), partitions=parts)
    for right in ("SELECT", "FLASHBACK"):
        made.privileges.grant("SCOTT", right, on=("HR", "T"))
    made.privileges.grant("SCOTT", "DBA_EXTENTS")
    table = catalog.describe(parse_table("HR.T"))
    assert table.ranges_from == "SAMPLE BLOCK"
    assert len(selectors(catalog, table)) > 4
    missing = " ".join(catalog.missing_privileges(table))
    assert "GRANT SELECT ON SYS.DBA_OBJECTS TO SCOTT" in missing
    assert "DBA_EXTENTS" not in missing
    made.privileges.grant("SCOTT", "DBA_OBJECTS")
    table = catalog.describe(parse_table("HR.T"))
    assert table.ranges_from == "DBA_EXTENTS"
    assert len({part.object_id for part in table.partitions}) == 4
    assert len(selectors(catalog, table)) > 4


def test_only_large_parts_of_many_are_sampled(server: OracleServer, catalog: OracleCatalog) -> None:
    """Of more partitions than are worth a statement each only those far above the mean get one."""
    parts = tuple(PartitionSpec(name=f"P{number}") for number in range(80))
    server.database.create_table(
        "SCOTT",
        "T",
        columns=ID_AND_NAME,
        rows=rows(ROWS),
        partitions=parts,
        partition_of=lambda row: row[0] if row[0] < 80 else 7,
        rows_per_block=5,
    )
    table = catalog.describe(parse_table("T"))
    samples = [each for each in server.sessions[-1].statements if "SAMPLE" in each]
    assert [each for each in samples if 'PARTITION ("P7")' in each] == samples != []
    found = selectors(catalog, table)
    assert {each.partition for each in found if isinstance(each, RowRange)} == {"P7"}


KEYS: dict[str, tuple[Type, Any]] = {
    "NUMBER": (Type(name="NUMBER"), lambda at: Decimal(at * 1001) / 8 - 1000),
    "VARCHAR2": (TEXT, lambda at: f"k'{at * 7919 % ROWS:05d} ü"),
    "DATE": (
        Type(name="DATE"),
        lambda at: Moment(1900 + at % 200, at % 12 + 1, at % 28 + 1, at % 24, at % 60, at % 59),
    ),
    "TIMESTAMP": (
        Type(name="TIMESTAMP", scale=9),
        lambda at: Moment(2000 + at % 20, at % 12 + 1, at % 28 + 1, nanos=at * 1001),
    ),
}


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("kind", list(KEYS))
@pytest.mark.parametrize("partitioned", [False, True])
def test_keys_of_index_organized_tables(
    server: OracleServer, catalog: OracleCatalog, kind: str, partitioned: bool
) -> None:
    """Ranges of the primary key's first column take the place of ROWIDs, with exact literals."""
    key_type, key = KEYS[kind]
    columns = (
        Column(name="Key", type=key_type, nullable=False),
        Column(name="N", type=NUMBER, nullable=False),
    )
    server.database.create_table(
        "SCOTT",
        "IOT",
        columns=columns,
        organization="index",
        key=("Key", "N"),
        rows=[(key(at), at) for at in range(600)],
        partitions=PARTS[:2] if partitioned else (),
        partition_of=(lambda row: row[1] % 2) if partitioned else None,
    )
    table = catalog.describe(parse_table("IOT"))
    assert table.ranges_from == "SAMPLE of key Key"
    unique_first = replace(table, columns=table.columns[::-1])
    found = selectors(catalog, unique_first, unit_bytes=2048)
    assert len(found) > 2
    assert all(isinstance(each, KeyRange) for each in found)


def test_keys_that_cannot_be_ranges(server: OracleServer, catalog: OracleCatalog) -> None:
    """A key of a type without exact literals leaves the table as one unit, and says why."""
    columns = (Column(name="R", type=Type(name="RAW", length=8), nullable=False),)
    server.database.create_table(
        "SCOTT",
        "IOT",
        columns=columns,
        organization="index",
        key=("R",),
        rows=[(bytes([at // 256, at % 256]),) for at in range(600)],
    )
    table = catalog.describe(parse_table("IOT"))
    assert table.ranges_from is None
    assert len(selectors(catalog, table, split="auto")) == 1
    assert any("RAW(8)" in each for each in catalog.missing_privileges(table))


def test_keys_that_may_not_be_sampled(server: OracleServer, catalog: OracleCatalog) -> None:
    """If the database takes no sample of keys, the table is one unit, and the reason is reported."""
    server.database.create_table(
        "SCOTT", "IOT", columns=ID_AND_NAME, organization="index", key=("ID",), rows=rows(600)
    )
    server.faults.add(Fault(kind="ora-30561", statement="SAMPLE \\(", times=None))
    table = catalog.describe(parse_table("IOT"))
    assert table.ranges_from is None
    assert len(selectors(catalog, table, split="auto")) == 1
    assert any("keys cannot be sampled" in each for each in catalog.missing_privileges(table))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, "12"),
        (Decimal("-0.125"), "-0.125"),
        ("it's", "'it''s'"),
        ("a\0b", None),
        ("k" * 1000, "'" + "k" * 1000 + "'"),
        ("k" * 1001, None),
        (b"x", None),
        (datetime(33, 2, 1, 4, 5, 6), "TO_DATE('0033-02-01 04:05:06','SYYYY-MM-DD HH24:MI:SS')"),
        (
            datetime(2033, 2, 1, 4, 5, 6, 7),
            "TO_TIMESTAMP('2033-02-01 04:05:06.000007','SYYYY-MM-DD HH24:MI:SS.FF6')",
        ),
    ],
)
def test_key_literals(value: Any, text: str | None) -> None:
    """A key is written so that the database reads the same value again; other keys are not used."""
    assert key_literal(value) == text
