"""From the name of a table to its format, which is imported on use."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from unloader.lakehouse.places import LakeKind

if TYPE_CHECKING:
    from unloader.lakehouse.base import LakeFormat


LIBRARIES: dict[LakeKind, str] = {
    "iceberg": "pyiceberg",
    "delta": "deltalake",
    "ducklake": "duckdb",
}
"""What each format needs."""

EXTRAS: dict[LakeKind, str] = {"iceberg": "iceberg", "delta": "delta", "ducklake": "duckdb"}
"""The extra of this package that brings it."""


def installed() -> dict[LakeKind, str | None]:
    """Return the formats of tables, and the version of the library of each; None if it lacks."""
    found: dict[LakeKind, str | None] = {}
    for kind, library in LIBRARIES.items():
        try:
            found[kind] = version(library)
        except PackageNotFoundError:
            found[kind] = None
    return found


def lake_format(kind: LakeKind) -> LakeFormat:
    """Return a format of tables.

    Raises:
        ConfigError: Its library is not installed.
    """
    if kind == "delta":
        from unloader.lakehouse.delta.tables import DeltaTables

        return DeltaTables()
    if kind == "ducklake":
        from unloader.lakehouse.ducklake.tables import DuckLakeTables

        return DuckLakeTables()
    from unloader.lakehouse.iceberg.tables import IcebergTables

    return IcebergTables()
