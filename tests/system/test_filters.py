"""Readers that skip by statistics find all rows with a filter: types, comparisons and NULL."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from filters import chosen, mistakes, readers
from filters.columns import GROUP_ROWS, SQL_TEXTS, arranged
from lakehouse.catalogs import Lake
from long_tests import also
from processes import command

GROUPS = 24
FORMS = "filters on other forms of files"
LAKE = (
    *("BOOLEAN", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL(4, 1)"),
    *("DECIMAL(18, 0)", "DECIMAL(38, 10)", "VARCHAR", "BLOB", "DATE", "TIMESTAMP"),
    *("TIMESTAMP WITH TIME ZONE", "UUID"),
)
"""Types that all tables of a lakehouse have."""


def table(path: Path, kinds: Sequence[str]) -> str:
    """Make a table with a column of each type, named after it; return its URL."""
    values = [arranged(SQL_TEXTS[kind], GROUPS, random.Random(kind)) for kind in kinds]
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f'"{kind}" {kind}' for kind in kinds)
        connection.execute(f"CREATE TABLE t ({columns})")
        casts = ", ".join(f"CAST(? AS {kind})" for kind in kinds)
        connection.executemany(f"INSERT INTO t VALUES ({casts})", list(zip(*values, strict=True)))
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with every type that is not nested."""
    kinds = [kind for kind in SQL_TEXTS if not kind.startswith("STRUCT")]
    return table(tmp_path_factory.mktemp("flat") / "t.duckdb", kinds)


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with structs."""
    kinds = [kind for kind in SQL_TEXTS if kind.startswith("STRUCT")]
    return table(tmp_path_factory.mktemp("nested") / "t.duckdb", kinds)


@pytest.fixture(scope="module")
def lake_types(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with types that tables of a lakehouse have, too."""
    return table(tmp_path_factory.mktemp("lake") / "t.duckdb", LAKE)


def parquet(source: str, to: str, *options: str) -> None:
    """Run the table into small row groups."""
    form = ("--format", "parquet", "--row-group-rows", str(GROUP_ROWS))
    command.run("run", source, "--table", "t", *form, "--to", to, *options)


def files_below(directory: Path) -> list[str]:
    """Return the files of a run."""
    return sorted(str(path) for path in directory.rglob("*.parquet"))


@pytest.mark.parametrize(
    "options", ["", "--encoder plain", *also(FORMS, "--no-dictionary", "--byte-stream-split")]
)
def test_filters_on_every_type(flat: str, tmp_path: Path, options: str) -> None:
    """DuckDB, polars and pyarrow count as many rows as there are, by both encoders."""
    parquet(flat, str(tmp_path), *options.split())
    readers.check_files(files_below(tmp_path), 12)


@pytest.mark.parametrize("options", ["", *also(FORMS, "--data-page-version 2.0")])
def test_filters_on_structs(nested: str, tmp_path: Path, options: str) -> None:
    """They are right on the fields of structs, floating point among them."""
    parquet(nested, str(tmp_path), *options.split())
    readers.check_files(files_below(tmp_path), 12)


def test_filters_on_an_iceberg_table(lake_types: str, the_lake: Lake) -> None:
    """pyiceberg skips no file by the bounds in its manifests that has rows to find."""
    parquet(lake_types, "iceberg://lake/ns.t", "--file-size", "1")
    scan = the_lake.table("t").scan()
    filters = [each for each in chosen(scan.to_arrow(), 3) if readers.iceberg_is_right(each)]
    assert len(list(scan.plan_files())) == GROUPS
    assert not mistakes(filters, readers.by_pyiceberg(the_lake.table("t"), filters), readers.IEEE)


def test_iceberg_bounds_cover_all_row_groups(the_lake: Lake, tmp_path: Path) -> None:
    """One row group without bounds, because of long text or NaN, leaves its file without."""
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, "
            f"CASE WHEN i < {GROUP_ROWS} THEN 'a' ELSE repeat('z', 5000) END long, "
            f"CASE WHEN i < {GROUP_ROWS} THEN 1 ELSE 'nan'::DOUBLE END f, "
            "repeat(chr(55295), 20) edge, DATE '0001-01-05' - i::INTEGER far "
            f"FROM range({2 * GROUP_ROWS}) r(i)"
        )
    parquet(f"duckdb://{path}", "iceberg://lake/ns.t")
    scan = the_lake.table("t").scan()
    (task,) = scan.plan_files()
    assert sorted(task.file.lower_bounds) == sorted(task.file.upper_bounds) == [1, 4]
    for condition, rows in (
        ("long > 'm'", 5),
        ("long = 'a'", 5),
        ("f is nan", 5),
        ("edge > 'm'", 10),
    ):
        assert scan.filter(condition).to_arrow().num_rows == rows


def test_filters_on_a_delta_table(lake_types: str, tmp_path: Path) -> None:
    """pyarrow and DataFusion find what there is; DataFusion skips pages, too."""
    from deltalake import DeltaTable

    parquet(lake_types, f"delta:{tmp_path / 'd'}", "--file-size", "20kB")
    delta = DeltaTable(str(tmp_path / "d"))
    dataset = delta.to_pyarrow_dataset()
    filters = chosen(dataset.to_table(), 12)
    readers.check_arrow(dataset, filters)
    assert not mistakes(filters, readers.by_datafusion(delta, filters), readers.TOTAL)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of one row group, whose columns have several pages with few values each."""
    path = tmp_path_factory.mktemp("pages") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT CASE i // 100000 WHEN 1 THEN NULL ELSE i // 60000 END::DOUBLE f, "
            "CASE WHEN i IN (300000, 900000) THEN 'nan'::DOUBLE ELSE 7 END n, "
            "(i // 80000 - 6) * 0.0::DOUBLE z, i // 90000 - 3 j, "
            "DATE '1969-12-20' + (i // 50000)::INTEGER d FROM range(1000000) r(i)"
        )
    return f"duckdb://{path}"


def test_filters_on_pages(pages: str, tmp_path: Path) -> None:
    """DataFusion skips no page by the index of pages that has rows to find."""
    from deltalake import DeltaTable

    form = ("--format", "parquet", "--no-dictionary", "--row-group-bytes", "64MiB")
    to = ("--to", f"delta:{tmp_path / 'd'}", "--split", "none")
    command.run("run", pages, "--table", "t", *form, *to)
    (path,) = files_below(tmp_path)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    filters = chosen(pq.read_table(path), 8)
    delta = DeltaTable(str(tmp_path / "d"))
    assert not mistakes(filters, readers.by_datafusion(delta, filters), readers.TOTAL)
    assert not mistakes(filters, readers.by_duckdb([path], filters), readers.TOTAL)
