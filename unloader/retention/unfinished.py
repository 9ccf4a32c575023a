"""Interrupted runs beside a new one: `--keep` counts them, too, and removes the old ones.

Without this their staged files would fill the disk. A run is removed only if its directory holds
nothing but its own files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from unloader.errors import OutputFailed, UnloaderError
from unloader.manifest.model import Manifest, SourceRecord, TableRecord, TablesManifest
from unloader.manifest.read import read_manifest
from unloader.redaction import redact
from unloader.resolve.broken_run import first_of_tables, options_of_tables, read_run
from unloader.resolve.homes import home_above, is_of_tables, recorded_tables
from unloader.resolve.resolved import ResolvedRun
from unloader.retention.earlier_runs import EarlierRun, why_not_ours
from unloader.retention.removing import LEAVING, empty, is_below, is_ours, within
from unloader.status.clearing import clear
from unloader.storage.directories.leftovers import strangers
from unloader.storage.place_names import absolute
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN, RUN_RECORD, WhoWasHere

_HIDDEN = ".unloader-"
"""In the names of directories in which a publication was prepared."""


class UnfinishedRun(Struct, frozen=True, kw_only=True):
    """An interrupted run in a directory of its own."""

    run_id: str
    place: Path
    tables: tuple[Path, ...]
    """The directories of its tables; the place itself for a run over one table."""
    ids: frozenset[str]
    """The run, and the runs in whose place it was: what they have published is in `tables`."""


def remove_unfinished(
    parent: Path,
    names: re.Pattern[str],
    new: Manifest | TablesManifest,
    finished: Sequence[str],
    keep: int,
) -> list[str]:
    """Remove interrupted runs of the same job that are not among the newest; return messages.

    Args:
        parent: The directory in which the runs are.
        names: What the name of each matches as a whole.
        new: The manifest of the new run.
        finished: The ids of the other finished runs of the job.
        keep: How many runs stay.
    """
    _finish_removals(parent)
    found = [run for run in _unfinished(parent, names, new) if run.run_id < new.run_id]
    ids = {*finished, new.run_id, *(run.run_id for run in found)}
    kept = sorted(ids, reverse=True)[:keep]
    messages = []
    for run in found:
        if run.run_id in kept:
            continue
        what = f"interrupted run {run.run_id} in {run.place}"
        try:
            places = [str(each) for each in (run.place, *run.tables)]
            storage_at(places[0]).complete(*places)
            left = _run_at(run.place)
            if left is None:
                continue  # It was cut short while it was published, and is finished now.
            why = _why_kept(left)
            if not why:
                _remove(left)
        except (OSError, UnloaderError) as error:
            why = str(error)
        messages.append(
            f"{what} is kept: {why}" if why else f"removed {what}, because of --keep {keep}"
        )
    return messages


def _unfinished(
    parent: Path, names: re.Pattern[str], new: Manifest | TablesManifest
) -> Iterator[UnfinishedRun]:
    with os.scandir(parent) as entries:
        listed = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    for place in (parent / name for name in listed if names.fullmatch(name)):
        with suppress(OSError, UnloaderError):
            run = _run_at(place)
            if run is not None and _is_same_job(run, new):
                yield run


def _run_at(place: Path) -> UnfinishedRun | None:
    """Return the run that was interrupted in a directory; None if there is no such run."""
    place = Path(absolute(str(place)))
    storage = storage_at(str(place))
    who = storage.who_was_here(str(place), counted=False)
    if who is None or not who.run_id or who.is_running or (place / MANIFEST).exists():
        return None
    record = storage.record(str(place), RUN_RECORD)
    tables = recorded_tables(record, str(place))
    directories = [Path(each) for table in tables for each in table.directories]
    return UnfinishedRun(
        run_id=who.run_id,
        place=place,
        tables=tuple(directories) or (place, *map(Path, who.places[1:])),
        ids=frozenset(
            {who.run_id, *(each.run_id for each in tables), *options_of_tables(record).replaces}
        ),
    )


def _is_same_job(run: UnfinishedRun, new: Manifest | TablesManifest) -> bool:
    """Return whether a run is of the job of a finished one, or has nothing to be resumed."""
    place = str(run.place)
    storage = storage_at(place)
    record = storage.record(place, RUN_RECORD)
    if not record:
        who = storage.who_was_here(place)
        return who is not None and (who.left.is_empty or _is_left_behind(who, place))
    if isinstance(new, TablesManifest):
        to = options_of_tables(record).destination
        return to == new.options.to and _is_source(first_of_tables(record, place), new.source)
    if is_of_tables(record):
        return False
    one = read_run(record, place)
    table = TableRecord(schema=one.extract.table.schema, name=one.extract.table.name)
    same = one.extract.query == new.query and (new.query is not None or table == new.table)
    return same and _is_source(one, new.source)


def _is_left_behind(who: WhoWasHere, place: str) -> bool:
    """Return whether a directory is of a table whose run over several has no record any more."""
    return bool(who.home) and not home_above(storage_at(place), place, who.run_id)


def _is_source(run: ResolvedRun, source: SourceRecord) -> bool:
    kind, location = run.extract.source.kind, redact(run.extract.source.location)
    return (kind, location) == (source.kind, source.location)


def _why_kept(run: UnfinishedRun) -> str:
    """Return why a run is not to be removed; empty if it may be."""
    directories = {run.place, *run.tables}
    for table in sorted(directories - {run.place}):
        inside = table.is_relative_to(run.place)
        if not inside or (os.path.lexists(table) and not is_below(table, run.place)):
            return f"it also has files in {table}"
    directories |= within(run.place, directories)
    for directory in sorted(directories):
        inner = {each.name for each in directories if each.parent == directory}
        if directory.is_dir() and (why := _stranger_in(directory, inner, run)):
            return why
    return ""


def _stranger_in(directory: Path, inner: set[str], run: UnfinishedRun) -> str:
    """Return what in a directory is not of a run; empty if all is."""
    for path in strangers(directory / RUN):
        return f"{path} is not a file of the run"
    names = {
        name
        for name in os.listdir(directory)
        if name != RUN and not any(_HIDDEN + each in name for each in run.ids)
    } - inner
    if MANIFEST in names and directory in run.tables:
        manifest = read_manifest(directory)
        if manifest.run_id in run.ids:
            earlier = EarlierRun(manifest=manifest, directories=(directory,))
            return why_not_ours(earlier, 0, directory, beside=frozenset({RUN}))
    for name in sorted(names):
        return f"{directory / name} is not a file of the run"
    return ""


def _remove(run: UnfinishedRun) -> None:
    """Remove a run. Its directory gets another name first, so that no process can resume it.

    Raises:
        OSError: The file system refused.
        OutputFailed: The run was resumed meanwhile.
    """
    hidden = run.place.with_name(f"{LEAVING}{run.run_id}-{run.place.name}")
    os.rename(run.place, hidden)
    moved = _run_at(hidden)
    if moved is None:
        os.rename(hidden, run.place)
        raise OutputFailed("it was resumed or finished in the meantime")
    _empty(moved)


def _empty(run: UnfinishedRun) -> None:
    """Remove the files of a run and its directories, the record of the run last."""
    others = [table for table in run.tables if table != run.place]
    for table in others:
        if not table.is_dir():
            continue
        clear([str(table)], dry_run=False)
        if (table / MANIFEST).exists():
            manifest = read_manifest(table)
            empty(EarlierRun(manifest=manifest, directories=(table,)), (table,))
        else:
            os.rmdir(table)
    for directory in sorted(within(run.place, set(others)), key=lambda path: -len(path.parts)):
        if directory.is_dir():
            os.rmdir(directory)
    clear([str(run.place)], dry_run=False)
    os.rmdir(run.place)


def _finish_removals(parent: Path) -> None:
    """Go on with what a removal that was killed has left in a directory."""
    with os.scandir(parent) as entries:
        left = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    for name in left:
        with suppress(OSError, UnloaderError):
            run = _run_at(parent / name) if name.startswith(LEAVING) else None
            if run is None or not name.startswith(f"{LEAVING}{run.run_id}-"):
                continue
            if is_ours(parent / name) and not _why_kept(run):
                _empty(run)
