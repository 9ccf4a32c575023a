"""A source of your own in one file: a folder whose sub-folders are tables of CSV files.

`folder:///data/in` has the table `sales` if there is /data/in/sales/*.csv. Each file is a partition
and its first line has the names of the columns. All values are text; an empty field without quotes
is NULL. Install it with `pip install ./examples/folder_source`: by the entry point in setup.cfg
`unloader` finds it, in the parent and in every worker. docs/sources.md explains each step.
"""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import csv as arrow_csv

from partition_planner.model import (
    ColumnInfo,
    NamedPartition,
    PartitionInfo,
    Piece,
    Selector,
    TableInfo,
)
from unloader.errors import ConfigError, SnapshotGone, SourceError
from unloader.events import Observer, silent
from unloader.model import (
    Consistency,
    Extract,
    Snapshot,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.request.locations import UrlForm
from unloader.request.names import matching_partitions, resolve
from unloader.sources.base import Capabilities, Catalog, Reader, Source
from unloader.sources.readings import ColumnReadings, Reading
from writers.schema import read_schema


class Folder:
    """What parent and workers both know of the folder; plain files, so nothing is connected."""

    def __init__(self, spec: SourceSpec) -> None:
        # The location is the URL as it was typed: %XX in it is decoded here.
        self.path = Path(unquote(spec.location.partition("://")[2]))

    def files(self, table: str) -> list[Path]:
        """Return the files of a table; their order is the order of the partitions."""
        return sorted((self.path / table).glob("*.csv"))

    def state(self) -> str:
        """Return what changes when any file does: the value of a snapshot."""
        states = [path.stat() for path in self.path.glob("*/*.csv")]
        newest = max((state.st_mtime_ns for state in states), default=0)
        return f"files={len(states)} bytes={sum(s.st_size for s in states)} newest_ns={newest}"

    def check(self, snapshot: Snapshot | None) -> None:
        """Refuse a folder that has changed: a folder has no snapshot to hold."""
        if snapshot is not None and snapshot.kind != "none" and snapshot.value != self.state():
            raise SnapshotGone(
                f"files in {self.path} have changed since the run began", "run again"
            )


class FolderCatalog(Catalog):  # Inherits the optional methods: hold, missing_privileges, cancel.
    """The parent's side: the tables, their snapshot, how they are read, how many rows they have."""

    # No conditions and no queries: the inherited methods refuse --where and --query.
    capabilities = Capabilities(
        shared_snapshot=True,  # --consistency snapshot works
        snapshot_outlives_run=True,  # `verify` may compare with the same state later
        folding="any",  # table names match in any case
    )
    server_version = "CSV files"

    def __init__(self, spec: SourceSpec) -> None:
        self.folder = Folder(spec)
        self.taken: Snapshot | None = None

    def tables(self) -> tuple[TableSummary, ...]:
        found = [(at.name, len(self.folder.files(at.name))) for at in self.folder.path.glob("*/")]
        return tuple(
            TableSummary(
                schema=None, name=name, kind="folder", rows=None, bytes=None, partitions=files
            )
            for name, files in sorted(found)
            if files
        )

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        where = str(self.folder.path)
        name = resolve(
            table, self.tables(), folding="any", default_schemas=("",), where=where
        ).name  # SourceError unless there is exactly one
        files = self.folder.files(name)
        with files[0].open(newline="", encoding="utf-8") as lines:
            columns = next(csv.reader(lines), [])
        parts = tuple(
            PartitionInfo(name=path.name, position=at, bytes=path.stat().st_size)
            for at, path in enumerate(files, 1)
        )
        return TableInfo(
            schema=None,
            name=name,
            columns=tuple(ColumnInfo(name=column, native_type="text") for column in columns),
            partitions=parts,
            bytes=sum(part.bytes or 0 for part in parts),
            named_partitions=True,  # workers get NamedPartition selectors
            row_ranges=False,  # and never a RowRange
        )

    def snapshot(self, consistency: Consistency) -> Snapshot:
        kind, value = ("none", "")
        if consistency == "snapshot":
            kind, value = "folder-state", self.folder.state()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.taken = Snapshot(kind=kind, value=value, taken_at=now)
        return self.taken

    def check_snapshot(self) -> None:
        self.folder.check(self.taken)

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        # One reading a column, exact for every output; its expression is for our reader alone.
        return tuple(
            ColumnReadings(
                name=column.name,
                source_type=column.native_type,
                nullable=None,
                readings=(
                    Reading(
                        expression=column.name,
                        output_type="string",
                        metadata=(("source_type", column.native_type),),
                    ),
                ),
            )
            for column in table.columns
        )

    def statement(self, extract: Extract, selector: Selector) -> str:
        return "read " + ", ".join(str(path) for path in _paths(self.folder, extract, selector))

    def count(self, extract: Extract) -> int:
        # By another reader than the workers', and by the partitions asked for, not by the plan.
        self.folder.check(extract.snapshot)
        files = self.folder.files(extract.table.name)
        wanted = matching_partitions((path.name for path in files), extract.partitions or ("*",))
        rows = 0
        for path in files:
            if path.name in wanted:
                with path.open(newline="", encoding="utf-8") as lines:
                    rows += sum(1 for record in csv.reader(lines) if record) - 1
        return rows

    def close(self) -> None:
        pass


class FolderReader(Reader):
    """A worker's side; one of these reads the pieces of many units, one after the other."""

    def __init__(self, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        self.folder = Folder(spec)
        self.folder.check(snapshot)

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        schema = read_schema(extract.projection.schema)  # Each batch has exactly this schema.
        names = [column.expression for column in extract.projection.columns]
        convert = arrow_csv.ConvertOptions(
            include_columns=list(dict.fromkeys(names)),
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        for path in _paths(self.folder, extract, piece.selector):
            try:
                with arrow_csv.open_csv(
                    path,
                    read_options=arrow_csv.ReadOptions(block_size=batch_bytes),
                    parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                    convert_options=convert,
                ) as found:
                    for batch in found:
                        arrays = [batch.column(name) for name in names]
                        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            except (pa.ArrowException, OSError) as error:
                raise SourceError(f"cannot read {path}: {error}", "correct the file") from error

    def close(self) -> None:
        pass


def _paths(folder: Folder, extract: Extract, selector: Selector) -> list[Path]:
    """Return the files of a selector: NamedPartition, or WholeTable with `--split none`."""
    if isinstance(selector, NamedPartition):
        return [folder.path / extract.table.name / selector.partition]
    return folder.files(extract.table.name)


class FolderSource(Source):  # Inherits the optional methods: load, driver_warning, declared.
    """The class that `unloader` finds by the entry point; made without arguments, and picklable."""

    scheme = "folder"
    summary = "folder of folders of CSV files: folder:///abs/path"
    url = UrlForm(written="folder:///PATH", what="file")

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        return spec if kind == "folder-state" else None  # Same value, same files.

    def open_catalog(self, spec: SourceSpec) -> FolderCatalog:
        catalog = FolderCatalog(spec)
        if not catalog.folder.path.is_dir():
            raise ConfigError(
                f"the folder {catalog.folder.path} does not exist", "check the path in the URL"
            )
        return catalog

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> FolderReader:
        return FolderReader(spec, snapshot)
