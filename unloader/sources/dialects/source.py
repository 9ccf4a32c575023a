"""A source whose catalog and rows are in the module `session` beside it, which needs pyarrow."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from unloader.model import Snapshot, SourceSpec
from unloader.sources.base import Catalog, Reader, Source
from unloader.sources.registry import missing_driver


class DriverSource(Source):
    """Its scheme is the name of its room and of its extra."""

    waits_for_network = True

    def load(self) -> None:
        self._session().load()

    def open_catalog(self, spec: SourceSpec) -> Catalog:
        catalog: Catalog = self._session().open_catalog(spec)
        return catalog

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> Reader:
        reader: Reader = self._session().open_reader(spec, snapshot)
        return reader

    def _session(self) -> Any:
        """Return the module; `ConfigError` where it cannot be loaded."""
        try:
            return import_module(f"unloader.sources.{self.scheme}.session")
        except ImportError as error:
            raise missing_driver(error, self.scheme) from error
