"""Oracle databases: partitions, ROWID and key ranges, all workers at one SCN.

The parent learns the SCN and describes; each statement of a worker names the SCN itself, so nothing
is held open for it and a later process can count at it, for as long as the undo reaches back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from unloader.model import Snapshot, SourceSpec
from unloader.request.locations import HOSTS, UrlForm
from unloader.sources.base import Source
from unloader.sources.oracle.catalog import OracleCatalog
from unloader.sources.oracle.columns.declared import declared
from unloader.sources.oracle.connection.drivers import driver_warning
from unloader.sources.oracle.options import OPTIONS
from unloader.sources.oracle.snapshot import SCN
from unloader.sources.readings import Declared

if TYPE_CHECKING:
    from unloader.sources.oracle.reading.reader import OracleReader


class OracleSource(Source):
    """Oracle databases, by `oracle://user@host:port/service` or `oracle://user@alias`."""

    scheme = "oracle"
    summary = "Oracle Database: oracle://user@host:1521/service or oracle://user@TNS_ALIAS"
    url = UrlForm(
        written="oracle://USER@HOST:1521/SERVICE",
        what="server",
        target=re.compile(rf"\(.*|(?:tcps?://)?{HOSTS}(?:/[^@?]*)?", re.IGNORECASE | re.DOTALL),
        decoded=True,
    )
    driver = "oracledb"
    options = OPTIONS
    waits_for_network = True

    def driver_warning(self, version: str) -> str | None:
        """Return a sentence if the driver in this version is not one that was found exact."""
        return driver_warning(version)

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        """Return the source with the SCN that its statements are to name."""
        if kind != SCN:
            return None
        return replace(spec, session=replace(spec.session, scn=int(value)))

    def declared(self, source_type: str) -> Declared:
        """Return what a type says of the length of its values."""
        return declared(source_type)

    def load(self) -> None:
        """Import the reader, the driver, and what the driver imports when it first connects."""
        import encodings.idna  # noqa: F401

        import cryptography.hazmat.primitives.ciphers  # noqa: F401
        import oracledb  # noqa: F401

        from unloader.sources.oracle.reading import reader  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> OracleCatalog:
        """Connect in the parent."""
        return OracleCatalog(spec)

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> OracleReader:
        """Connect in a worker."""
        from unloader.sources.oracle.reading.reader import OracleReader

        return OracleReader(spec, snapshot)
