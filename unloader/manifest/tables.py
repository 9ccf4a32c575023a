"""The manifest of a run over several tables: which there were, and what became of each.

It lies in the directory that those of all tables are in, and is written when the last of them is
over. What was read of a table and into which files is in the table's own manifest alone.
"""

from __future__ import annotations

from typing import Literal

from unloader.manifest.asked import Record, SourceRecord, TableRecord
from unloader.manifest.model import FORMAT_VERSION
from unloader.model import Setting, Snapshot


class TableEntry(Record, frozen=True, kw_only=True):
    """One table of the run."""

    table: TableRecord | None
    """None for a query."""
    route: str | None = None
    """Which of several outputs of the table it is; each has an entry."""
    directory: str
    """Of its files and its own manifest, as seen from the directory of this one.

    Empty if it is left out."""
    status: Literal["complete", "failed", "left out"]
    """failed: what was done of it can be gone on with; left out: nothing of it was read."""
    error: str | None = None
    """Why it is not complete."""
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    source_rows: int | None = None
    """As the source counts them at the snapshot."""
    verified: str | None = None
    """As in the manifest of the table; None if it is not complete."""
    units: int | None = None
    """Work units that it was read in."""
    worker_seconds: float | None = None
    """How long workers were busy with it, added up."""
    digest: str | None = None
    """Of the table's manifest, which stands at its end."""


class TablesRecord(Record, frozen=True, kw_only=True):
    """What was said of the run as a whole."""

    to: str
    """Of the directories, with its fields."""
    directory: str
    """What it became as far as it is that of all tables: where this manifest was written."""
    publish: Literal["table", "run"]
    on_table_failure: Literal["stop", "continue"]


class TablesTotals(Record, frozen=True, kw_only=True):
    """Sums over the tables that are complete."""

    tables: int
    rows: int
    bytes: int
    files: int
    seconds: float
    cpu_seconds: float


class TablesManifest(
    Record, frozen=True, kw_only=True, tag_field="format_version", tag=FORMAT_VERSION
):
    """A run over several tables."""

    run_id: str
    unloader_version: str
    status: Literal["complete", "partial"]
    """complete: every table is."""
    source: SourceRecord
    snapshot: Snapshot | None
    options: TablesRecord
    settings: tuple[Setting, ...]
    job: str | None = None
    """SHA-256 of what was asked for. Two runs that have the same were of the same job."""
    tables: tuple[TableEntry, ...]
    """In the order in which they were asked for."""
    totals: TablesTotals
    digest: str | None = None
    """Of all bytes before its line; `manifest_bytes` adds it."""
