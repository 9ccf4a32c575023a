"""Every format of tables keeps the promises of `unloader.lakehouse.table_commits`."""

from __future__ import annotations

from pathlib import Path

import pytest
from lakehouse.catalogs import Lake, lake, rows_of_files, rows_of_log, rows_of_table
from lakehouse.format_checks import Checks


def test_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg, with a catalog in SQLite; its rows are counted by pyiceberg and by DuckDB."""
    made = lake(tmp_path)
    # pyiceberg reads its configuration once, when it is imported.
    monkeypatch.setattr("unloader.lakehouse.iceberg_tables.open_catalog", lambda name: made.open())
    Checks("iceberg", "iceberg://lake/ns.t", lambda name: _rows(made)).check_format()


def _rows(made: Lake) -> int:
    table = made.table("t")
    counted = len(rows_of_files(table))
    assert counted == len(rows_of_table(table))
    return counted


def test_delta(tmp_path: Path) -> None:
    """Delta, in a directory; its rows are counted by delta-rs' own engine and by DuckDB."""
    Checks("delta", f"delta:{tmp_path / 'a table'}", _rows_of_delta).check_format()


def _rows_of_delta(name: str) -> int:
    from deltalake import DeltaTable, QueryBuilder

    root = name.removeprefix("delta:")
    engine = QueryBuilder().register("t", DeltaTable(root))
    counted = int(engine.execute("SELECT * FROM t").read_all().num_rows)
    assert counted == len(rows_of_log(Path(root)))
    return counted
