"""From the name of a table to its format, which is imported on use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.lakehouse.places import LakeKind

if TYPE_CHECKING:
    from unloader.lakehouse.base import LakeFormat


def lake_format(kind: LakeKind) -> LakeFormat:
    """Return a format of tables.

    Raises:
        ConfigError: Its library is not installed.
    """
    if kind == "delta":
        from unloader.lakehouse.delta.tables import DeltaTables

        return DeltaTables()
    from unloader.lakehouse.iceberg.tables import IcebergTables

    return IcebergTables()
