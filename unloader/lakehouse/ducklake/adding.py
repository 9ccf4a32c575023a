"""Files that are there become part of a DuckLake table, within a transaction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader.lakehouse.ducklake.opening import CATALOG, RECORDS, Address

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_PATTERN = re.compile(r"[\[*?]")
"""What DuckDB takes for a pattern in the path of a file."""


def add_files(lake: DuckDBPyConnection, address: Address, paths: Sequence[str]) -> None:
    """Add files by their absolute paths; each has rows, and the columns of the table.

    Raises:
        duckdb.Error: One is not there, or does not fit.
    """
    for path in paths:
        # A directory named a=1 is no partition.
        lake.execute(
            f"CALL ducklake_add_data_files('{CATALOG}', ?, ?, schema => ?, "
            "hive_partitioning => false)",
            [address.table, _PATTERN.sub(r"[\g<0>]", path), address.schema],
        )


def newest_snapshot(lake: DuckDBPyConnection) -> int:
    """Return the number of the newest snapshot; also within a transaction that writes."""
    found = lake.execute(f"SELECT max(snapshot_id) FROM ducklake_snapshots('{CATALOG}')").fetchone()
    assert found is not None
    return int(found[0])


def has_partitions(lake: DuckDBPyConnection, table_id: str) -> bool:
    """Tell whether the rows of a table are kept apart by their values.

    Args:
        lake: The catalog.
        table_id: The table's, which stays the same whatever becomes of its name.
    """
    found = lake.execute(
        f"SELECT 1 FROM {RECORDS}.ducklake_partition_info p "
        f"JOIN {RECORDS}.ducklake_table t USING (table_id) "
        "WHERE t.table_uuid = ? AND p.end_snapshot IS NULL AND t.end_snapshot IS NULL",
        [table_id],
    ).fetchone()
    return found is not None
