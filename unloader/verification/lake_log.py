"""Compares a finished run with the log of its lakehouse table.

Maintenance of a table moves rows to other files and removes the files that a run wrote. That is not
damage. The log of the table names the operation.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import Any

from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed
from unloader.events import Notice, Observer
from unloader.lakehouse.lake_formats import lake_format
from unloader.lakehouse.lake_runs import receipt
from unloader.lakehouse.table_commits import LaterChange, RunLog
from unloader.manifest.model import Manifest
from unloader.model import LakeTable
from unloader.nouns import are, counted
from unloader.storage.place_names import PlacePath
from unloader.storage.storage_lookup import storage_at


class RunInTable(Struct, frozen=True, kw_only=True):
    """A finished run as the table knows it that the run was for."""

    hint: str
    """What to do next if something differs. To unload again may add rows twice."""
    log: RunLog | None = None
    """None if the log cannot be read, or does not know the run."""
    missing: tuple[str, ...] = ()
    """Names of the run's files that are missing and that the table does not use."""
    differences: tuple[str, ...] = ()
    """Between the log and the manifest."""

    def to_json(self) -> dict[str, Any] | None:
        if self.log is None:
            return None
        return {
            "rows": self.log.rows,
            "changes": [
                {
                    "snapshot": change.snapshot or None,
                    "operation": change.operation or None,
                    "time": change.time or None,
                    "keeps_rows": change.keeps_rows,
                    "files": list(change.files),
                    "removed_rows": change.removed_rows,
                    "added_rows": change.added_rows,
                }
                for change in self.log.changes
            ],
            "missing_files": list(self.missing),
        }


def run_in_table(
    manifest: Manifest, table: LakeTable, destination: PlacePath, observe: Observer
) -> RunInTable:
    """Read the log of a table about a finished run, and report operations on its files."""
    place = shlex.quote(str(destination))
    # A file without rows is never part of a table.
    names = [name for name, file in manifest.files.items() if file.rows]
    try:
        log = lake_format(table.kind).run_log(table, manifest.run_id, names)
    except (ConfigError, OutputFailed) as error:
        observe(Notice(text=f"the log of {table.name} is not compared: {error.message}"))
        return RunInTable(
            hint=f"{error.hint.rstrip('. ')}; then, before you unload again, compare the log: "
            f"unloader verify {place}"
        )
    if not log.is_known and not receipt(str(destination)):
        text = f"the log of {table.name} does not show that run {manifest.run_id} was committed"
        observe(Notice(text=text))
        return RunInTable(hint=f"look at the run with: unloader status {place}")
    for change in log.changes:
        observe(Notice(text=_text(change, manifest, table)))
    unused = {name for change in log.changes for name in change.files}
    present: frozenset[str] = frozenset()
    with suppress(FileNotFoundError):
        present = frozenset(storage_at(str(destination)).names(str(destination)))
    missing = tuple(
        name
        for name, file in manifest.files.items()
        if name not in present and (name in unused or not file.rows)
    )
    if missing:
        text = (
            f"{counted(len(missing), 'file')} of the run {are(len(missing))} missing, which is not "
            f"damage: {table.name} does not use {'it' if len(missing) == 1 else 'them'}"
        )
        observe(Notice(text=text))
    differences: list[str] = []
    if log.rows not in (None, manifest.totals.rows):
        differences.append(
            f"the manifest has {counted(manifest.totals.rows, 'row')}, but the log of {table.name} "
            f"has {counted(log.rows, 'row')} for the run"
        )
    first = "find out which program changed the log" if differences else "restore the files"
    return RunInTable(
        hint=f"{first}; before you unload again, remove the rows of run {manifest.run_id} from "
        f"{table.name}, or they are there twice",
        log=log,
        missing=missing,
        differences=tuple(differences),
    )


def _text(change: LaterChange, manifest: Manifest, table: LakeTable) -> str:
    files = counted(len(change.files), "file")
    rows = counted(sum(manifest.files[name].rows for name in change.files), "row")
    if not change.snapshot and not change.operation:
        return (
            f"{table.name} does not use {files} of the run with {rows} any more; its log no "
            "longer shows which operation replaced or removed them"
        )
    details = ", ".join(filter(None, (change.operation, change.time)))
    who = " ".join(filter(None, ("snapshot", change.snapshot, details and f"({details})")))
    both = ""
    if change.removed_rows is not None and change.added_rows is not None:
        both = (
            f": it removed files with {counted(change.removed_rows, 'row')} and added files with "
            f"{counted(change.added_rows, 'row')}"
        )
    if change.keeps_rows:
        return (
            f"{who} has replaced {files} of the run with {rows} by other files, without a change "
            f"of the table's rows{both}"
        )
    return f"{who} has removed {files} of the run with {rows} from {table.name}{both}"
