"""The snapshots of an Iceberg table, and the runs that they record until they expire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from unloader.errors import OutputFailed
from unloader.lakehouse.table_commits import RUN_ID, LaterChange, RunLog, one_of, time_of
from unloader.model import LakeTable

MAIN = "main"


def snapshot_of_run(table: Table, run_id: str) -> str:
    """Return the snapshot that records a run; empty if no snapshot records it."""
    found = _of_run(table.metadata.snapshots, run_id)
    return "" if found is None else str(found.snapshot_id)


def _of_run(snapshots: Iterable[Snapshot], run_id: str) -> Snapshot | None:
    return next((each for each in snapshots if _property(each, RUN_ID) == run_id), None)


def _property(snapshot: Snapshot, name: str) -> str | None:
    summary = snapshot.summary
    return None if summary is None else summary.additional_properties.get(name)


def head_of(table: Table, branch: str | None) -> str:
    """Return the newest snapshot of a branch, of main for a new branch; empty without one."""
    refs = table.metadata.refs
    ref = refs.get(branch or MAIN) or refs.get(MAIN)
    return "" if ref is None else str(ref.snapshot_id)


def check_remembers(table: Table, was: LakeTable, run_id: str) -> None:
    """Check that a run without a snapshot was never committed."""
    known = table.metadata.snapshots
    if was.base:
        sure = any(str(each.snapshot_id) == was.base for each in known)
    else:
        sure = not known or min(each.sequence_number or 0 for each in known) <= 1
    if not sure:
        raise OutputFailed(
            f"the table {was.name} no longer has the snapshot at which run {run_id} began, so it "
            "is unknown whether the run was committed",
            f"check whether the table has its rows; if it does not, remove {was.files}",
        )


def log_of_run(table: Table, was: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
    """Return the entries of a table's log about a run, as `LakeFormat.run_log` does."""
    paths = {f"{was.files}/{name}": name for name in names}
    known = {each.snapshot_id: each for each in table.metadata.snapshots}
    own, head = _of_run(known.values(), run_id), known.get(int(head_of(table, was.branch) or 0))
    used, removed_by = _files_in(table, head, paths, own)
    if len(used) < len(paths):
        # Of all manifests: another commit may have added the files again. What a tag or another
        # branch has is also used.
        used, removed_by = _files_in(table, head, paths, None)
        for number in {each.snapshot_id for each in table.metadata.refs.values()}:
            used |= _files_in(table, known.get(number), paths, None)[0]
    gone = paths.keys() - used
    if gone or own is None:
        known |= _earlier(table)
        own = _of_run(known.values(), run_id)
    later, oldest = _after(own, head, known)
    for snapshot in later:
        if gone - removed_by.keys() and table.snapshot_by_id(snapshot.snapshot_id) is not None:
            removed_by |= _removed_in(table, snapshot, gone)
    suspects = _suspects(own, later, oldest)
    files: dict[tuple[int, ...] | None, list[str]] = {}
    for path in sorted(gone):
        by = (removed_by[path],) if path in removed_by else suspects
        files.setdefault(by, []).append(paths[path])
    rows = None if own is None else _number(own, "added-records")
    changes = [_change(by, tuple(each), known, head) for by, each in files.items()]
    return RunLog(
        is_known=own is not None or bool(used or removed_by),
        rows=rows,
        changes=tuple(sorted(changes, key=lambda each: (not each.time, each.time))),
    )


def _files_in(
    table: Table, head: Snapshot | None, paths: Mapping[str, str], own: Snapshot | None
) -> tuple[set[str], dict[str, int]]:
    """Return which files a snapshot has, and which it remembers as removed, with the snapshot that
    removed each.
    """
    used: set[str] = set()
    removed_by: dict[str, int] = {}
    for manifest in [] if head is None else head.manifests(table.io):
        if not _may_name(manifest, own):
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            path = entry.data_file.file_path
            if path in paths and entry.status != ManifestEntryStatus.DELETED:
                used.add(path)
            elif path in paths and entry.snapshot_id is not None:
                removed_by[path] = entry.snapshot_id
    return used, removed_by


def _may_name(manifest: ManifestFile, own: Snapshot | None) -> bool:
    """Return whether a manifest may name files that a snapshot added, or their removal.

    A file keeps the sequence number of its snapshot in every manifest. The least number of a
    manifest belongs to its current files, and not to files that it records as removed.
    """
    if own is None or not own.sequence_number:
        return True
    return manifest.sequence_number >= own.sequence_number and (
        manifest.min_sequence_number <= own.sequence_number or manifest.deleted_files_count != 0
    )


def _earlier(table: Table) -> dict[int, Snapshot]:
    """Return the snapshots in earlier metadata files, which also name expired snapshots.

    Each snapshot is as the first file has it: pyiceberg forgets a parent that expires.
    """
    found: dict[int, Snapshot] = {}
    for entry in reversed(table.metadata.metadata_log):
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except FileNotFoundError:
            break  # The table removes its old metadata files.
        found |= {each.snapshot_id: each for each in metadata.snapshots}
    return found


def _after(
    own: Snapshot | None, head: Snapshot | None, known: Mapping[int, Snapshot]
) -> tuple[list[Snapshot], int | None]:
    """Return the snapshots of a branch from its newest back to a run's, without the run's.

    Also return the parent of the last one: the run's, a forgotten one, or None for the first of
    the table.
    """
    found: list[Snapshot] = []
    number = None if head is None else head.snapshot_id
    while number is not None and number in known and known[number] is not own:
        found.append(known[number])
        number = known[number].parent_snapshot_id
    return found, number


def _suspects(
    own: Snapshot | None, later: Sequence[Snapshot], oldest: int | None
) -> tuple[int, ...] | None:
    """Return the snapshots that may have removed a file, if no manifest names its removal.

    Return an empty result if the log has forgotten it, and None if the branch begins before the
    run's snapshot and does not lead to it.
    """
    if own is None:
        return ()
    if oldest is None and later and later[-1].timestamp_ms < own.timestamp_ms:
        return None
    if oldest != own.snapshot_id:
        return ()
    found: list[int] = []
    for snapshot in reversed(later):
        if _number(snapshot, "deleted-data-files") != 0:
            found.append(snapshot.snapshot_id)
        total = _property(snapshot, "total-data-files")
        if total is not None and int(total) == _number(snapshot, "added-data-files"):
            break  # It has left no file that was there before.
    return tuple(found)


def _removed_in(table: Table, snapshot: Snapshot, gone: set[str]) -> dict[str, int]:
    """Return which files a snapshot has removed, each with the snapshot."""
    return {
        entry.data_file.file_path: snapshot.snapshot_id
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count != 0
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.DELETED and entry.data_file.file_path in gone
    }


def _change(
    by: tuple[int, ...] | None,
    files: tuple[str, ...],
    known: Mapping[int, Snapshot],
    head: Snapshot | None,
) -> LaterChange:
    if by is None:
        return LaterChange(
            snapshot="" if head is None else str(head.snapshot_id),
            operation="rollback",
            time="",
            keeps_rows=False,
            files=files,
        )
    found = [known[each] for each in by if each in known]
    operations = sorted({each.summary.operation.value for each in found if each.summary})
    one = found[0] if len(by) == len(found) == 1 else None
    return LaterChange(
        snapshot=one_of([str(each) for each in by]),
        operation=" or ".join(operations),
        time="" if one is None else time_of(one.timestamp_ms),
        keeps_rows=operations == ["replace"],
        files=files,
        removed_rows=None if one is None else _number(one, "deleted-records"),
        added_rows=None if one is None else _number(one, "added-records"),
    )


def _number(snapshot: Snapshot, name: str) -> int | None:
    """Return a number of a snapshot's summary; 0 if the summary leaves it out."""
    return None if snapshot.summary is None else int(_property(snapshot, name) or 0)
