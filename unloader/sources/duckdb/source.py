"""DuckDB: an embedded database file, opened read-only by the parent and by every worker.

DuckDB lets many processes read a file as long as none writes it, so the open file itself is the
snapshot. It has no partitions; a table may bring its own map of them, see `layout`.
"""

from __future__ import annotations

from unloader.errors import SnapshotGone
from unloader.model import Snapshot, SourceSpec
from unloader.request.locations import UrlForm
from unloader.sources.base import Source
from unloader.sources.declared import Declared, one_of
from unloader.sources.duckdb.catalog import FILE, DuckDBCatalog
from unloader.sources.duckdb.file import connect, identity_of, path_of
from unloader.sources.duckdb.reader import DuckDBReader
from unloader.sources.file_state import FileAtSnapshot

_LONGEST = {"HUGEINT": 40, "TIME WITH TIME ZONE": 24, "UHUGEINT": 39, "UUID": 36}
"""Types that are read as text of at most so many ASCII characters."""


class DuckDBSource(Source):
    """DuckDB files, by `duckdb:///absolute/path.db`."""

    scheme = "duckdb"
    summary = "DuckDB database file: duckdb:///abs/path.db"
    url = UrlForm(written="duckdb:///PATH", what="file")
    extra = "duckdb"
    driver = "duckdb"

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        """Return the file itself: the snapshot is its state."""
        return spec if kind == FILE else None

    def declared(self, source_type: str) -> Declared:
        """Return how long the texts of types are that are read as text."""
        return one_of(source_type, _LONGEST)

    def load(self) -> None:
        """Import DuckDB."""
        import duckdb  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> DuckDBCatalog:
        """Open the file in the parent."""
        return DuckDBCatalog(connect(spec, {}))

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> DuckDBReader:
        """Open the file in a worker; one thread, as the processes are the parallelism."""
        path = path_of(spec)
        wanted = snapshot.value if snapshot is not None and snapshot.value else None
        at_snapshot = FileAtSnapshot(str(path), lambda: identity_of(path), wanted)
        file = connect(spec, {"threads": "1"})
        try:
            at_snapshot.check_opened(file.identity)
        except SnapshotGone:
            file.connection.close()
            raise
        return DuckDBReader(file.connection, at_snapshot)
