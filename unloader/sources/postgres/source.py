"""PostgreSQL: partitions and heap ranges over COPY, all workers in one exported snapshot.

The parent holds a read-only transaction and exports its snapshot; each worker imports it. Reads go
through COPY, the server's own exact text: handed on where the asked-for dialect is one that COPY
writes (`encoded`), parsed from the CSV form into batches elsewhere.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from unloader.model import Snapshot, SourceSpec
from unloader.request.locations import HOSTS, UrlForm
from unloader.sources.base import Source
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.reader import PostgresReader, session_in
from unloader.sources.postgres.session import EXPORTED, PARENT_GATHER, Session, is_exported
from unloader.sources.postgres.types import declared
from unloader.sources.readings import Declared
from unloader.sources.registry import OPTIONS


class PostgresSource(Source):
    """PostgreSQL servers, by `postgresql://user@host:port/database`."""

    scheme = "postgresql"
    summary = "PostgreSQL: postgresql://user@host:5432/database"
    url = UrlForm(
        written="postgresql://USER@HOST:5432/DATABASE",
        what="server",
        target=re.compile(rf"{HOSTS}(?:/[^@?#]*)?"),
    )
    extra = "postgres"
    driver = "psycopg"
    options = OPTIONS["postgresql"]
    waits_for_network = True

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        if kind != EXPORTED or not is_exported(value):
            return None
        return replace(spec, session=replace(spec.session, snapshot=value))

    def declared(self, source_type: str) -> Declared:
        return declared(source_type)

    def load(self) -> None:
        from unloader.sources.postgres.libpq import connection  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> PostgresCatalog:
        return PostgresCatalog(Session(spec, gather=PARENT_GATHER), spec)

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> PostgresReader:
        return PostgresReader(lambda: session_in(spec, snapshot))
