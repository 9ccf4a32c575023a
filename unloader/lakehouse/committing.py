"""A finished run becomes part of its table: from its manifest alone, and once.

The manifest stands when this begins, so that whoever comes next can do it, too.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from unloader.errors import OutputFailed, UnloaderError
from unloader.lakehouse.model import RUN_ID, Commit, Committed, NewFile
from unloader.lakehouse.opening import lake_format
from unloader.manifest.model import Manifest
from unloader.storage.objects.holder import Holder
from unloader.storage.opening import storage_at
from writers.errors import WriteError

RECEIPT = "_committed.json"
"""Name of the file that tells, beside the manifest, of the commit. The table knows best; it may
forget its snapshots, and then this is what is left."""

SIGN = "_committing.json"
"""Name of the file that tells which process was the first to begin with that."""

_LOOK_SECONDS = 1.0
"""Between a manifest and the sign of the process that has written it."""

_PATIENCE = timedelta(minutes=15)
"""How long a process of another machine is taken to be at it (a guess)."""


def commit_run(manifest: Manifest, place: str, *, is_own: bool) -> Committed | None:
    """Commit a finished run; return None if it is not for a table.

    Args:
        manifest: Of the run.
        place: Where it lies.
        is_own: This process has written the files.

    Raises:
        OutputFailed: It could not be committed; the hint says how to do it.
        ConfigError: The library is missing, or the catalog is not configured.
    """
    table = manifest.lake_table
    if table is None:
        return None
    if not is_own and (known := receipt(place)):
        return Committed(snapshot=known, is_new=False)
    commit = Commit(
        run_id=manifest.run_id,
        table=table,
        files=tuple(
            NewFile(path=f"{table.files}/{name}", rows=file.rows, bytes=file.bytes)
            for name, file in manifest.files.items()
        ),
        properties=_properties(manifest),
        is_own=is_own,
    )
    _check_files(manifest, place)
    _leave(place, SIGN, Holder.here(manifest.run_id, (place,)).to_bytes())
    try:
        done = lake_format(table.kind).commit(commit)
    except UnloaderError as error:
        raise type(error)(
            f"run {manifest.run_id} is complete in {place}, but its commit to {table.name} failed: "
            f"{error.message}",
            f"{error.hint.rstrip('. ')}; commit it with: unloader resume '{place}'"
            if _may_help(error)
            else error.hint,
        ) from error
    document = {"run_id": manifest.run_id, "snapshot": done.snapshot}
    _leave(place, RECEIPT, f"{json.dumps(document)}\n".encode())
    return done


def is_being_committed(place: str) -> bool:
    """Return whether the process of a run that is complete seems to be committing it just now."""
    for wait in (_LOOK_SECONDS, 0.0):
        try:
            holder = Holder.read(storage_at(place).read(place, SIGN))
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
    """Return the snapshot that a run's own record says it is part of; empty if it says nothing."""
    try:
        document = json.loads(storage_at(place).read(place, RECEIPT))
        return str(document["snapshot"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _check_files(manifest: Manifest, place: str) -> None:
    """Check that the files are there, of the size that they were written with."""
    storage = storage_at(place)
    for name, file in manifest.files.items():
        try:
            size = storage.size(place, name)
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


def _may_help(error: UnloaderError) -> bool:
    return not (isinstance(error, OutputFailed) and "run again" in error.hint)


def _leave(place: str, name: str, data: bytes) -> None:
    # Nothing depends on it alone.
    with suppress(FileExistsError, WriteError, OSError):
        storage_at(place).put_new(place, name, data)


def _properties(manifest: Manifest) -> tuple[tuple[str, str], ...]:
    """Return what the table is told of a run."""
    snapshot, table = manifest.snapshot, manifest.table
    found = {
        RUN_ID: manifest.run_id,
        "unloader.version": manifest.unloader_version,
        "unloader.source-kind": manifest.source.kind,
        "unloader.source": manifest.source.location,
        "unloader.table": ""
        if table is None
        else ".".join(filter(None, (table.schema, table.name))),
        "unloader.snapshot-kind": "" if snapshot is None else snapshot.kind,
        "unloader.snapshot": "" if snapshot is None else str(snapshot.value),
        "unloader.plan-digest": manifest.plan.digest,
        "unloader.rows": str(manifest.totals.rows),
    }
    return tuple((key, value) for key, value in found.items() if value)
