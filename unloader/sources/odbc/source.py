"""ODBC: any database with a driver for unixODBC."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from unloader.model import Snapshot, SourceSpec
from unloader.request.locations import UrlForm
from unloader.sources.base import Catalog, Reader, Source
from unloader.sources.registry import OPTIONS, missing_driver


class OdbcSource(Source):
    """Databases with an ODBC driver, by `odbc:DSN=...` or `odbc:Driver={...};...`."""

    scheme = "odbc"
    summary = "any database with an ODBC driver: odbc:DSN=name or odbc:Driver={...};Server=..."
    url = UrlForm(written="odbc:DSN=NAME;UID=USER", what="other")
    extra = "odbc"
    driver = "arrow-odbc"
    options = OPTIONS["odbc"]
    waits_for_network = True

    def load(self) -> None:
        _session().load()

    def open_catalog(self, spec: SourceSpec) -> Catalog:
        catalog: Catalog = _session().open_catalog(spec)
        return catalog

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> Reader:
        reader: Reader = _session().open_reader(spec, snapshot)
        return reader


def _session() -> Any:
    """Return the module that needs pyarrow; `ConfigError` where it cannot be loaded."""
    try:
        return import_module("unloader.sources.odbc.session")
    except ImportError as error:
        raise missing_driver(error, "odbc") from error
