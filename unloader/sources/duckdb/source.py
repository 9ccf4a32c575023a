"""DuckDB: an embedded database file, opened read-only by the parent and by every worker.

DuckDB lets many processes read a file while no process writes it, so the open file itself is the
snapshot. It has no partitions; a table may have a map of partitions, see `catalog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.model import Snapshot, SourceSpec
from unloader.request.locations import UrlForm
from unloader.sources.base import Source
from unloader.sources.duckdb import catalog
from unloader.sources.readings import Declared, one_of

if TYPE_CHECKING:
    from unloader.sources.duckdb.reader import DuckDBReader

_LONGEST = {"HUGEINT": 40, "TIME WITH TIME ZONE": 24, "UHUGEINT": 39, "UUID": 36}


class DuckDBSource(Source):
    """DuckDB files, by `duckdb:///absolute/path.db`."""

    scheme = "duckdb"
    summary = "DuckDB database file: duckdb:///abs/path.db"
    url = UrlForm(written="duckdb:///PATH", what="file")
    extra = "duckdb"
    driver = "duckdb"

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        return spec if kind == catalog.FILE else None

    def declared(self, source_type: str) -> Declared:
        return one_of(source_type, _LONGEST)

    def load(self) -> None:
        import duckdb  # noqa: F401
        import pyarrow.ipc
        import pyarrow.types  # noqa: F401

        import unloader.sources.duckdb.reader  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> catalog.DuckDBCatalog:
        return catalog.DuckDBCatalog(spec)

    def share(self, spec: SourceSpec) -> None:
        """Open the file, for the first reader of each process that is forked from this one.

        To open a file takes most of the CPU of a small worker: 35 of 75 ms, measured with 16
        workers. The database has no thread, and its temporary files have the id of the process that
        writes them, so that forks share only memory that the kernel copies.
        """
        from unloader.sources.duckdb import reader

        reader.share(spec)

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> DuckDBReader:
        """Open the file in a worker, or take the open file that the worker was forked with."""
        from unloader.sources.duckdb import reader

        return reader.open_reader(spec, snapshot)
