"""MySQL and MariaDB: partitions and ranges of primary keys, all workers at one moment.

The parent begins a transaction for each worker at one moment, and lends the sessions to workers.
The server sends each value as its exact text.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from unloader.model import Snapshot, SourceSpec
from unloader.request.locations import HOSTS, UrlForm
from unloader.sources.base import Catalog, Reader, Source
from unloader.sources.mysql.statement import declared
from unloader.sources.readings import Declared
from unloader.sources.registry import OPTIONS, missing_driver


class MySQLSource(Source):
    """Servers of MySQL 8 and MariaDB 10.11 or newer, by `mysql://user@host:port/database`."""

    scheme = "mysql"
    summary = "MySQL and MariaDB: mysql://user@host:3306/database"
    url = UrlForm(
        written="mysql://USER@HOST:3306/DATABASE",
        what="server",
        target=re.compile(rf"{HOSTS}(?:/[^@?#]*)?"),
    )
    extra = "mysql"
    driver = "PyMySQL"
    options = OPTIONS["mysql"]
    one_machine = "the sessions of the snapshot are lent to processes of this machine"
    waits_for_network = True

    def declared(self, source_type: str) -> Declared:
        return declared(source_type)

    def load(self) -> None:
        _module("reader")

    def open_catalog(self, spec: SourceSpec) -> Catalog:
        catalog: Catalog = _module("catalog").MySQLCatalog(spec)
        return catalog

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> Reader:
        reader: Reader = _module("reader").MySQLReader(spec, snapshot)
        return reader


def _module(name: str) -> Any:
    """Return a module that needs the driver; `ConfigError` where it cannot be loaded."""
    try:
        return import_module(f"unloader.sources.mysql.{name}")
    except ImportError as error:
        raise missing_driver(error, "mysql") from error
