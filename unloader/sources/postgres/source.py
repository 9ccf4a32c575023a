"""PostgreSQL: partitions and heap ranges over COPY, all workers in one exported snapshot.

The parent holds a read-only transaction and exports its snapshot; each worker imports it. Reads go
through COPY, the server's own exact text: handed on where the asked-for dialect is one that COPY
writes (`encoded`), parsed from the CSV form into batches elsewhere.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from unloader.errors import ConfigError
from unloader.model import Snapshot, SourceSpec
from unloader.request.locations import HOSTS, UrlForm
from unloader.sources.base import Catalog, Reader, Source
from unloader.sources.postgres.statement import EXPORTED, SNAPSHOT_VALUE, declared
from unloader.sources.readings import Declared
from unloader.sources.registry import OPTIONS, missing_driver


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
        if kind != EXPORTED or not SNAPSHOT_VALUE.fullmatch(value):
            return None
        return replace(spec, session=replace(spec.session, snapshot=value))

    def declared(self, source_type: str) -> Declared:
        return declared(source_type)

    def load(self) -> None:
        _module("reader")

    def open_catalog(self, spec: SourceSpec) -> Catalog:
        catalog: Catalog = _module("catalog").PostgresCatalog(spec)
        return catalog

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> Reader:
        reader: Reader = _module("reader").PostgresReader(spec, snapshot)
        return reader


def _module(name: str) -> Any:
    """Return a module that needs the driver; `ConfigError` where it cannot be loaded."""
    try:
        return import_module(f"unloader.sources.postgres.{name}")
    except ImportError as error:
        chosen = os.environ.get("PSYCOPG_IMPL")
        if chosen:
            raise ConfigError(
                f"psycopg cannot be loaded with PSYCOPG_IMPL={chosen}: {error}",
                "unset PSYCOPG_IMPL: psycopg then takes the first that it can load",
            ) from error
        raise missing_driver(error, "postgres") from error
