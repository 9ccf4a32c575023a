"""The runs for a lakehouse table: where they are, their commit, their removal, and the table's log.

The files of a run are below the data of its table, in a place named by the run. Its manifest is
complete before the commit begins, so that a later command can repeat the commit.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain

from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed, UnloaderError
from unloader.events import Notice, Observer
from unloader.lakehouse.lake_formats import lake_format, lake_kind
from unloader.lakehouse.table_commits import (
    RUN_ID,
    Commit,
    Committed,
    LakeFormat,
    LaterChange,
    NewFile,
    RunLog,
    committed_once,
)
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.model import LakeTable
from unloader.nouns import are, counted
from unloader.storage.objects.object_lock import ObjectHolder
from unloader.storage.objects.object_staging import Room
from unloader.storage.place_names import PlacePath, path_of
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN_RECORD, Cleaning, Leftover
from writers.errors import WriteError
from writers.objects.location import below, is_location

RECEIPT = "_committed.json"
"""Name of the file beside the manifest that records the commit. The table has priority, but it may
forget its snapshots."""

SIGN = "_committing.json"
"""Name of the file that records which process began the commit first."""

_LOOK_SECONDS = 1.0
"""Between a manifest and the sign of the process that wrote it."""

_PATIENCE = timedelta(minutes=15)
"""How long a process of another machine counts as committing (a guess)."""

_LOOKED_AT = 100
"""The number of a table's newest runs that are checked: it may have thousands."""

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{11}")


def commit_run(manifest: Manifest, place: str, *, is_own: bool) -> Committed:
    """Commit a finished run to the table that its manifest names.

    `is_own`: this process has written the files. An OutputFailed has the command that repeats the
    commit. A ConfigError: the library is missing, or the catalog is not configured.
    """
    table = manifest.lake_table
    assert table is not None
    if not is_own and (known := receipt(place)):
        return Committed(snapshot=known, is_new=False)
    # The table records these properties of the run.
    snapshot, source = manifest.snapshot, manifest.table
    properties = {
        RUN_ID: manifest.run_id,
        "unloader.version": manifest.unloader_version,
        "unloader.source-kind": manifest.source.kind,
        "unloader.source": manifest.source.location,
        "unloader.table": ""
        if source is None
        else ".".join(filter(None, (source.schema, source.name))),
        "unloader.snapshot-kind": "" if snapshot is None else snapshot.kind,
        "unloader.snapshot": "" if snapshot is None else str(snapshot.value),
        "unloader.plan-digest": manifest.plan.digest,
        "unloader.rows": str(manifest.totals.rows),
    }
    commit = Commit(
        run_id=manifest.run_id,
        table=table,
        files=tuple(
            NewFile(path=f"{table.files}/{name}", rows=file.rows, bytes=file.bytes)
            for name, file in manifest.files.items()
        ),
        properties={key: value for key, value in properties.items() if value},
        is_own=is_own,
    )
    # The files are there, of the size that they were written with.
    for name, file in manifest.files.items():
        try:
            size = storage_at(place).size(place, name)
        except OSError as error:
            raise OutputFailed(
                f"cannot see a file of run {manifest.run_id} in {place}: {error}",
                "find out which program removed it, and run again",
            ) from error
        if size != file.bytes:
            raise OutputFailed(
                f"{name} of run {manifest.run_id} in {place} has {size} bytes instead of "
                f"{file.bytes}",
                "find out which program changed it, and run again",
            )
    _leave(place, SIGN, ObjectHolder.here(manifest.run_id, (place,)).to_bytes())
    try:
        done = committed_once(lake_format(table.kind), commit)
    except UnloaderError as error:
        hint = error.hint
        if not isinstance(error, OutputFailed) or "run again" not in hint:
            hint = f"{hint.rstrip('. ')}; commit it with: unloader resume '{place}'"
        raise type(error)(
            f"run {manifest.run_id} is complete in {place}, but its commit to {table.name} failed: "
            f"{error.message}",
            hint,
        ) from error
    document = {"run_id": manifest.run_id, "snapshot": done.snapshot}
    _leave(place, RECEIPT, f"{json.dumps(document)}\n".encode())
    return done


def is_being_committed(place: str) -> bool:
    """Return whether the process of a complete run seems to be committing it now."""
    for wait in (_LOOK_SECONDS, 0.0):
        try:
            holder = ObjectHolder.read(storage_at(place).read(place, SIGN))
        except (OSError, ValueError):
            time.sleep(wait)
            continue
        alive = holder.lives()
        if alive is None:
            began = datetime.fromisoformat(holder.since)
            return datetime.now(UTC) - began < _PATIENCE
        return alive
    return False


def receipt(place: str) -> str:
    """Return the snapshot that the receipt of a run names; empty without a receipt."""
    try:
        document = json.loads(storage_at(place).read(place, RECEIPT))
        return str(document["snapshot"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _leave(place: str, name: str, data: bytes) -> None:
    # Nothing depends on it alone.
    with suppress(FileExistsError, WriteError, OSError):
        storage_at(place).put_new(place, name, data)


def homes(name: str) -> tuple[str, ...]:
    """Return the places of the runs for a table, the newest first."""
    place = _format_of(name).data_place(name)
    try:
        found = storage_at(place).levels(place)
    except OSError as error:
        raise OutputFailed(
            f"cannot look for the files of {name} in {place}: {error}",
            "check the permissions and the credentials for that place",
        ) from error
    runs = (each for each in found if _RUN_ID.fullmatch(each))
    return tuple(below(place, each) for each in sorted(runs, reverse=True))


def uncommitted(name: str) -> Iterator[tuple[str, Manifest | None]]:
    """Yield the newest places, active ones too, with manifests of complete uncommitted runs."""
    tables = _format_of(name)
    for home in homes(name)[:_LOOKED_AT]:
        storage = storage_at(home)
        if MANIFEST not in storage.names(home):
            yield home, None
        elif not receipt(home):
            manifest = read_manifest(path_of(home))
            table = manifest.lake_table
            if table is None or tables.committed(table, manifest.run_id):
                continue
            if not is_being_committed(home):
                yield home, manifest


def has_begun(home: str) -> bool:
    """Return whether a run can be resumed or is active: it is on record, or alive."""
    storage = storage_at(home)
    if storage.record(home, RUN_RECORD):
        return True
    who = storage.who_was_here(home, counted=False)
    return who is not None and who.is_running


def home_of(name: str) -> str:
    """Return the newest run that has begun and is not part of the table, or else the newest."""
    left = dict(uncommitted(name))
    begun = (home for home, manifest in left.items() if manifest is not None or has_begun(home))
    others = homes(name)
    committed = (home for home in others if home not in left)
    first = next(chain(begun, committed, others), None)
    if first is None:
        raise OutputFailed(f"{name} has no files of a run", "name a table that a run wrote to")
    return first


def removed(place: str, *, dry_run: bool) -> Cleaning | None:
    """Remove a complete run unless it is committed (None); OutputFailed if that is unknown."""
    manifest = read_manifest(path_of(place))
    table = manifest.lake_table
    if table is None or receipt(place):
        return None
    if lake_format(table.kind).committed(table, manifest.run_id):
        return None
    if is_being_committed(place):
        raise OutputFailed(
            f"run {manifest.run_id} in {place} is being committed to {table.name}",
            "wait until the commit has ended",
        )
    left = Leftover(
        directory=place,
        run_id=manifest.run_id,
        units=len(manifest.units),
        files=len(manifest.files),
        bytes=manifest.totals.bytes,
    )
    # The manifest first: without it no process can commit the files any more.
    names = (MANIFEST, *manifest.files, SIGN, RECEIPT)
    if not dry_run and is_location(place):
        room = Room(place)
        for part in (names[:1], names[1:]):
            room.bucket.delete(room.final(name) for name in part)
    elif not dry_run:
        try:
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(place, name))
        except OSError as error:
            raise OutputFailed(
                f"cannot remove the files of a run in {place}: {error}",
                "check the permissions there",
            ) from error
        with suppress(OSError):
            os.rmdir(place)  # It may contain something else.
    return Cleaning(dry_run=dry_run, completed=(), removed=(left,))


def _format_of(name: str) -> LakeFormat:
    kind = lake_kind(name)
    assert kind is not None
    return lake_format(kind)


class RunInTable(Struct, frozen=True, kw_only=True):
    """A finished run in the log of a table, whose maintenance may move rows and remove files."""

    hint: str
    """What to do next if something differs. To unload again may add rows twice."""
    log: RunLog | None = None
    """None if the log cannot be read, or does not know the run."""
    missing: tuple[str, ...] = ()
    """Names of the run's files that are missing and that the table does not use."""
    differences: tuple[str, ...] = ()
    """Between the log and the manifest."""


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
        observe(Notice(text=_change_text(change, manifest, table)))
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


def _change_text(change: LaterChange, manifest: Manifest, table: LakeTable) -> str:
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
