"""The manifest of a run over several tables: which there were, and what became of each.

It lies in the directory that those of all tables are in, and is written when the last of them is
over. What was read of a table and into which files is in the table's own manifest alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from unloader import json_fields
from unloader.json_fields import OPTIONAL
from unloader.json_text import indented
from unloader.manifest.asked import SettingRecord, SourceRecord, TableRecord
from unloader.manifest.digest import with_digest
from unloader.manifest.model import FORMAT_REVISION, FORMAT_VERSION
from unloader.model import Snapshot


class TableEntry(Struct, frozen=True, kw_only=True):
    """One table of the run."""

    table: TableRecord | None
    """None for a query."""
    route: Annotated[str | None, OPTIONAL] = None
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


class TablesRecord(Struct, frozen=True, kw_only=True):
    """What was said of the run as a whole."""

    to: str
    """Of the directories, with its fields."""
    directory: str
    """What it became as far as it is that of all tables: where this manifest was written."""
    publish: Literal["table", "run"]
    on_table_failure: Literal["stop", "continue"]


class TablesTotals(Struct, frozen=True, kw_only=True):
    """Sums over the tables that are complete."""

    tables: int
    rows: int
    bytes: int
    files: int
    seconds: float
    cpu_seconds: float


class TablesManifest(Struct, frozen=True, kw_only=True):
    """A run over several tables."""

    format_version: Literal[1] = FORMAT_VERSION
    format_revision: int = FORMAT_REVISION
    run_id: str
    unloader_version: str
    status: Literal["complete", "partial"]
    """complete: every table is."""
    source: SourceRecord
    snapshot: Snapshot | None
    options: TablesRecord
    settings: tuple[SettingRecord, ...] = ()
    job: Annotated[str | None, OPTIONAL] = None
    """SHA-256 of what was asked for. Two runs that have the same were of the same job."""
    tables: tuple[TableEntry, ...]
    """In the order in which they were asked for."""
    totals: TablesTotals
    digest: Annotated[str | None, OPTIONAL] = None
    """Of the file in front of this line."""


def is_of_tables(document: object) -> bool:
    """Return whether a manifest is one of several tables."""
    return isinstance(document, dict) and "tables" in document


def to_json(manifest: TablesManifest) -> dict[str, Any]:
    """Return a manifest as it is written."""
    return json_fields.fields_to_json(manifest)


def from_json(document: object) -> TablesManifest:
    """Return the manifest that `to_json` wrote, in this version or another of the same format.

    Raises:
        NotAsExpected: It is not whole, or a value is of another type; the message names the key.
    """
    return json_fields.from_json(TablesManifest, document, "the manifest", newer=True)


def tables_manifest_bytes(manifest: TablesManifest) -> bytes:
    """Return the text of a manifest as it is written, its digest at the end."""
    document = to_json(replace(manifest, digest=None))
    return with_digest((indented(document) + "\n").encode())
