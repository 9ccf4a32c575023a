"""ADBC: any database with a driver as a Python package or as a shared library."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from unloader.model import Snapshot, SourceSpec
from unloader.request.locations import UrlForm
from unloader.sources.base import Catalog, Reader, Source
from unloader.sources.registry import OPTIONS, missing_driver


class AdbcSource(Source):
    """Databases with an ADBC driver, by `adbc://NAME?uri=...`."""

    scheme = "adbc"
    summary = "any database with an ADBC driver: adbc://DRIVER?uri=..."
    url = UrlForm(written="adbc://DRIVER?OPTION=VALUE", what="other")
    extra = "adbc"
    driver = "adbc-driver-manager"
    options = OPTIONS["adbc"]
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
        return import_module("unloader.sources.adbc.session")
    except ImportError as error:
        raise missing_driver(error, "adbc") from error
