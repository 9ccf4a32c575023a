"""Oracle databases: partitions, ROWID and key ranges, all workers at one SCN.

The parent learns the SCN and describes; each statement of a worker names the SCN itself, so nothing
is held open for it and a later process can count at it, for as long as the undo reaches back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.model import Snapshot, SourceSpec
from unloader.sources.oracle.catalog import OracleCatalog
from unloader.sources.oracle.connection.drivers import driver_warning
from unloader.sources.oracle.options import OPTIONS

if TYPE_CHECKING:
    from unloader.sources.oracle.reading.reader import OracleReader


class OracleSource:
    """Oracle databases, by `oracle://user@host:port/service` or `oracle://user@alias`."""

    scheme = "oracle"
    summary = "Oracle Database: oracle://user@host:1521/service or oracle://user@TNS_ALIAS"
    extra = ""
    driver = "oracledb"
    options = OPTIONS

    def driver_warning(self, version: str) -> str | None:
        """Return a sentence if the driver in this version is not one that was found exact."""
        return driver_warning(version)

    def load(self) -> None:
        """Import the driver, and what it imports itself when it first connects."""
        import cryptography.hazmat.primitives.ciphers  # noqa: F401
        import oracledb  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> OracleCatalog:
        """Connect in the parent."""
        return OracleCatalog(spec)

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> OracleReader:
        """Connect in a worker."""
        from unloader.sources.oracle.reading.reader import OracleReader

        return OracleReader(spec, snapshot)
