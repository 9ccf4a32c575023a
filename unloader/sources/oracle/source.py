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
from unloader.sources.oracle.statement import SCN, driver_warning
from unloader.sources.readings import Declared, decimal_digits, one_of, text_length
from unloader.sources.registry import OPTIONS

if TYPE_CHECKING:
    from unloader.sources.oracle.reader import OracleReader


_TEXTS = ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR")
_PADDED = ("CHAR", "NCHAR")
_TIMESTAMP = re.compile(r"TIMESTAMP(?: ?\((\d+)\))?.*")
_MONTHS = re.compile(r"INTERVAL YEAR ?\((\d+)\) TO MONTH")
_SECONDS = re.compile(r"INTERVAL DAY ?\((\d+)\) TO SECOND ?\((\d+)\)")
_RAW = re.compile(r"RAW ?\((\d+)\)")


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
    options = OPTIONS["oracle"]
    waits_for_network = True

    def driver_warning(self, version: str) -> str | None:
        return driver_warning(version)

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        if kind != SCN:
            return None
        return replace(spec, session=replace(spec.session, scn=int(value)))

    def declared(self, source_type: str) -> Declared:
        if match := _TIMESTAMP.fullmatch(source_type):
            zone = "LOCAL TIME ZONE" in source_type
            return Declared(
                second_digits=int(match[1] or 9),
                zone="offset" if zone else "region" if "WITH TIME ZONE" in source_type else None,
            )
        if match := _MONTHS.fullmatch(source_type):
            return Declared(longest="+" + "9" * int(match[1]) + "-11")
        if match := _SECONDS.fullmatch(source_type):
            fraction = "." + "9" * int(match[2]) if int(match[2]) else ""
            return Declared(longest="+" + "9" * int(match[1]) + " 23:59:59" + fraction)
        if match := _RAW.fullmatch(source_type):
            return Declared(binary_bytes=int(match[1]))
        return (
            text_length(source_type, _TEXTS, _PADDED)
            or decimal_digits(source_type)
            or one_of(source_type, {"ROWID": 18})
        )

    def load(self) -> None:
        """Import the reader, the driver, and the modules that the driver imports on connecting."""
        import cryptography.hazmat.primitives.ciphers  # noqa: F401
        import oracledb  # noqa: F401

        from unloader.sources.oracle import reader as reader

    def open_catalog(self, spec: SourceSpec) -> OracleCatalog:
        return OracleCatalog(spec)

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> OracleReader:
        from unloader.sources.oracle.reader import OracleReader

        return OracleReader(spec, snapshot)
