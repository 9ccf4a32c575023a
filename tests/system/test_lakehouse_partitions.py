"""Iceberg tables with partitions: each file is in one of them, or the run is refused."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from lakehouse.catalogs import Lake, rows_of_files, rows_of_table
from processes import command

EPOCH = date(1970, 1, 1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with moments before and after 1970, texts, nulls and numbers; return its URL."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t (i BIGINT, ts TIMESTAMP, region VARCHAR, price DECIMAL(9, 2), f DOUBLE)"
        )
        connection.execute(
            "INSERT INTO t SELECT i, "
            "CASE i // 100 WHEN 0 THEN TIMESTAMP '1969-12-31 00:00:00' + to_minutes(14 * (i % 100))"
            " WHEN 1 THEN TIMESTAMP '2026-03-29 00:00:00.000001' + to_minutes(14 * (i % 100))"
            " WHEN 2 THEN NULL ELSE TIMESTAMP '2026-03-30 00:00:00' + to_hours(i) END, "
            "CASE WHEN i < 200 THEN 'nörd-' || i ELSE 'south' END, i + 0.25, 1.5 "
            "FROM range(400) r(i)"
        )
    return f"duckdb://{path}"


def run(source: str, *options: str) -> tuple[str, ...]:
    """Return the run of the table into the one of the lake."""
    where = ("--to", "iceberg://lake/ns.t", "--format", "parquet")
    return ("run", source, "--table", "t", *where, *options)


def partitions(table: Any) -> set[tuple[Any, ...]]:
    """Return the partitions that the table's own records have its files in."""
    return {
        tuple(task.file.partition[at] for at in range(len(table.spec().fields)))
        for task in table.scan().plan_files()
    }


def day(text: str) -> int:
    """Return the number of a day, as Iceberg counts them."""
    return (date.fromisoformat(text) - EPOCH).days


@pytest.mark.long("runs into tables of a lakehouse")
def test_a_table_is_made_with_partitions_and_an_order(source: str, the_lake: Lake) -> None:
    """Each file is in the partition of its rows: a reader that skips others finds all of them."""
    asked = ("--partition-by", "day(ts)", "--partition-by", "truncate(2, region)")
    rows = ("--query", "SELECT * FROM t WHERE i < 100 ORDER BY i", "--sorted-by", "i")
    place = ("--to", "iceberg://lake/ns.t", "--format", "parquet")
    command.run("run", source, *rows, *place, *asked)
    command.run(*run(source, "--save-mode", "append", "--where", "i BETWEEN 100 AND 199"))
    command.run(*run(source, "--save-mode", "append", "--where", "i BETWEEN 200 AND 299"))
    table = the_lake.table("t")
    assert [str(each) for each in table.spec().fields] == [
        "1000: ts_day: day(2)",
        "1001: region_trunc: truncate[2](3)",
    ]
    order = table.sort_order()
    assert [(f.source_id, f.direction.value, f.null_order.value) for f in order.fields] == [
        (1, "asc", "nulls-last")
    ]
    assert partitions(table) == {(day("1969-12-31"), "nö"), (day("2026-03-29"), "nö"), (None, "so")}
    with duckdb.connect(source.removeprefix("duckdb://"), read_only=True) as connection:
        wanted = connection.execute("FROM t WHERE i < 300 ORDER BY ALL").fetchall()
    assert rows_of_files(table) == wanted
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["i"]) == [
        dict(zip(("i", "ts", "region", "price", "f"), row, strict=True)) for row in wanted
    ]
    for condition, first in (
        ("ts < '1970-01-01T00:00:00'", 0),
        ("ts >= '2026-03-29T00:00:00'", 100),
        ("ts is null", 200),
    ):
        scan = table.scan(row_filter=condition)
        assert len(list(scan.plan_files())) == 1
        assert sorted(scan.to_arrow()["i"].to_pylist()) == list(range(first, first + 100))


@pytest.mark.long("runs into tables of a lakehouse")
def test_a_table_of_somebody_else(source: str, the_lake: Lake) -> None:
    """Its partitions are met: by a decimal, and by a month."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform, MonthTransform

    command.run(*run(source, "--where", "false"))
    schema = the_lake.table("t").schema()
    catalog = the_lake.open()
    catalog.drop_table("ns.t")
    spec = PartitionSpec(
        PartitionField(4, 1000, IdentityTransform(), "price"),
        PartitionField(2, 1001, MonthTransform(), "ts_month"),
    )
    catalog.create_table("ns.t", schema, partition_spec=spec)
    command.run(*run(source, "--save-mode", "append", "--where", "i = 7"))
    command.run(*run(source, "--save-mode", "append", "--where", "i = 107"))
    table = the_lake.table("t")
    assert {(str(price), month) for price, month in partitions(table)} == {
        ("7.25", -1),
        ("107.25", 12 * 56 + 2),
    }
    found = table.scan(row_filter="price = 7.25").to_arrow().to_pylist()
    assert [row["ts"] for row in found] == [datetime(1969, 12, 31, 1, 38)]
    assert len(rows_of_table(table)) == len(rows_of_files(table)) == 2


@pytest.mark.long("runs into tables of a lakehouse")
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("i < 200", "more than one partition values"),
        ("i BETWEEN 150 AND 250", "values of ts are both null and not null"),
    ],
)
def test_rows_of_several_partitions_are_refused(
    source: str, the_lake: Lake, rows: str, said: str
) -> None:
    """Nothing is committed, and the written files can be removed."""
    command.run(*run(source, "--partition-by", "day(ts)", "--where", "i < 100"))
    error = command.error_of(*run(source, "--save-mode", "append", "--where", rows), status=6)
    assert said in error
    assert "one partition of the table at a time with --where" in error
    assert len(rows_of_files(the_lake.table("t"))) == 100
    command.run("clean", "iceberg://lake/ns.t")
    assert len(the_lake.homes("t")) == 1


@pytest.mark.long("runs into tables of a lakehouse")
def test_a_table_that_keeps_no_bounds_is_refused(source: str, the_lake: Lake) -> None:
    """Without them a file would be taken for one whose values are all null."""
    command.run(*run(source, "--partition-by", "day(ts)", "--where", "i < 100"))
    name = "write.metadata.metrics.column.ts"
    with the_lake.table("t").transaction() as change:
        change.set_properties({name: "counts"})
    more = run(source, "--save-mode", "append", "--where", "i BETWEEN 100 AND 199")
    assert f"{name} = full" in command.error_of(*more, status=6)
    assert len(rows_of_files(the_lake.table("t"))) == 100


@pytest.mark.long("runs into tables of a lakehouse")
@pytest.mark.parametrize(
    ("field", "status", "said"),
    [
        ("bucket(16, i)", 6, "rows are not sorted into partitions"),
        ("f", 6, "the statistics of a file do not show this value"),
        ("day(i)", 2, "the transform day does not exist for column 'i', which is long"),
        ("nowhere", 2, "unknown column 'nowhere'"),
        ("day(4, ts)", 2, "is not a partition"),
        ("truncate(region)", 2, "is not a partition"),
        ("week(ts)", 2, "is not a partition"),
    ],
)
def test_partitions_that_cannot_be_had(
    source: str, the_lake: Lake, field: str, status: int, said: str
) -> None:
    """Each is refused before a row is read."""
    assert said in command.error_of(*run(source, "--partition-by", field), status=status)
    assert not the_lake.homes("t")


def test_partitions_are_for_a_table_that_is_made(
    source: str, the_lake: Lake, tmp_path: Path
) -> None:
    """One that is there has its own, and each field has its own name; Delta has others."""
    asked = ("--partition-by", "region")
    assert "has its own" in command.error_of(
        *run(source, *asked, "--save-mode", "append"), status=2
    )
    twice = ("--partition-by", "day(ts)", "--partition-by", "DAY(ts)")
    assert "two fields would have the name" in command.error_of(*run(source, *twice), status=2)
    delta = ("--to", f"delta:{tmp_path / 'd'}", "--format", "parquet", *asked)
    assert "Iceberg" in command.error_of("run", source, "--table", "t", *delta, status=2)
