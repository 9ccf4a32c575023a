"""The report of a run over several tables: what its page shows, from its manifest alone."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from unloader.manifest.asked import SourceRecord
from unloader.manifest.tables import TableEntry, TablesManifest, TablesTotals
from unloader.model import Snapshot
from unloader.report.model import FORMAT_VERSION, SettingLine


class TableLine(Struct, frozen=True, kw_only=True):
    """One table that is complete."""

    table: str
    """Empty for a query."""
    directory: str
    """As seen from the directory of the run."""
    rows: int | None
    bytes: int | None
    files: int | None
    units: int | None
    worker_seconds: float | None
    worker_share: float | None
    """Of what workers did for all tables; None where nothing was measured."""
    verified: str


class MissingLine(Struct, frozen=True, kw_only=True):
    """One table that is not complete."""

    table: str
    directory: str
    status: str
    reason: str


class TablesReport(Struct, frozen=True, kw_only=True):
    """Everything that the page of a run over several tables shows."""

    report: Literal["tables"] = "tables"
    format_version: Literal[1] = FORMAT_VERSION
    run_id: str
    status: str
    unloader_version: str
    source: SourceRecord
    destination: str
    """`--to`, with its fields."""
    directory: str
    """Of the run, when its manifest was written."""
    snapshot: Snapshot | None
    totals: TablesTotals
    asked_for: int
    """How many tables there are, those that are not complete among them."""
    rows_per_second: float | None
    bytes_per_second: float | None
    verified: str
    tables: tuple[TableLine, ...]
    """What took workers longest comes first."""
    missing: tuple[MissingLine, ...]
    settings: tuple[SettingLine, ...]


def tables_report(manifest: TablesManifest) -> TablesReport:
    """Return the report of a run over several tables."""
    totals = manifest.totals
    done = [each for each in manifest.tables if each.status == "complete"]
    busy = sum(each.worker_seconds or 0.0 for each in done)
    seconds = totals.seconds
    return TablesReport(
        run_id=manifest.run_id,
        status=manifest.status,
        unloader_version=manifest.unloader_version,
        source=manifest.source,
        destination=manifest.options.to,
        directory=manifest.options.directory,
        snapshot=manifest.snapshot,
        totals=totals,
        asked_for=len(manifest.tables),
        rows_per_second=round(totals.rows / seconds, 1) if seconds > 0 else None,
        bytes_per_second=round(totals.bytes / seconds, 1) if seconds > 0 else None,
        verified=", ".join(sorted({each.verified or "" for each in done})),
        tables=tuple(
            _line(each, busy) for each in sorted(done, key=lambda each: -(each.worker_seconds or 0))
        ),
        missing=tuple(
            MissingLine(
                table=_name(each),
                directory=each.directory,
                status=each.status,
                reason=each.error or "",
            )
            for each in manifest.tables
            if each.status != "complete"
        ),
        settings=tuple(
            SettingLine(name=each.name, value=each.value, origin=each.origin)
            for each in manifest.settings
        ),
    )


def _line(entry: TableEntry, busy: float) -> TableLine:
    seconds = entry.worker_seconds
    return TableLine(
        table=_name(entry),
        directory=entry.directory,
        rows=entry.rows,
        bytes=entry.bytes,
        files=entry.files,
        units=entry.units,
        worker_seconds=seconds,
        worker_share=round(seconds / busy, 4) if busy and seconds is not None else None,
        verified=entry.verified or "",
    )


def _name(entry: TableEntry) -> str:
    table = entry.table
    name = "" if table is None else ".".join(filter(None, (table.schema, table.name)))
    return f"{name} ({entry.route})" if entry.route else name
