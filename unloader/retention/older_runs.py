"""Older runs of the same job: which there are, which may be removed, and their removal.

A directory is removed only if all its contents belong to one run. This is a finished run of the
same job, unchanged since publication, or an interrupted run. Anything else stays, and the reason is
reported. A run over several tables is removed as a whole. Interrupted runs count, too: without that
their staged files would fill the disk.

A removal is atomic for readers: the directories are renamed first, so that no reader finds a part
of a run. If something has been put into one meanwhile, all get their names back. The manifest, or
the record of an interrupted run, goes last, so that a removal that is killed can be finished.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed, UnloaderError
from unloader.manifest.model import Manifest, TableRecord, TablesManifest
from unloader.manifest.read import (
    digest_at_end,
    directories_of,
    home_manifest,
    manifest_data,
    read_manifest,
)
from unloader.redaction import redact
from unloader.resolve.places import home_above
from unloader.resolve.run_record import first_of, is_of_tables, options_of, recorded_tables
from unloader.storage.directories.directory_records import strangers
from unloader.storage.place_names import absolute
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN, RUN_RECORD, Cleaning

LEAVING = ".removed-"
"""Start of the name of a directory while its files are removed."""

_HIDDEN = ".unloader-"
"""In the names of directories in which a publication was prepared."""

Places = tuple[tuple[Path, re.Pattern[str]], ...]
"""For each directory of a run the parent that runs of the job are in, and what its name matches."""


class EarlierRun(Struct, frozen=True, kw_only=True):
    """A finished run of one table in its own directory, or in several."""

    manifest: Manifest
    directories: tuple[Path, ...]
    """The first holds the manifest."""

    @property
    def files(self) -> tuple[tuple[int, str], ...]:
        """Number of the directory and name of each of its files, the manifest last."""
        listed = ((file.directory, name) for name, file in self.manifest.files.items())
        return (*listed, (0, MANIFEST))

    def names(self, number: int) -> list[str]:
        return [name for place, name in self.files if place == number]

    def why_kept(self, allowed: Places) -> str:
        if len(allowed) != len(self.directories):
            return "it is in other directories than the new run"
        for directory, (parent, names) in zip(self.directories, allowed, strict=True):
            if not directory.is_dir() or directory.is_symlink():
                return f"{directory} is not a directory"
            is_beside = False
            with suppress(OSError):
                is_beside = os.path.samefile(directory.parent, parent)
            if not is_beside or not names.fullmatch(directory.name):
                return f"{directory} is not next to the new run"
        for number, directory in enumerate(self.directories):
            if why := why_not_ours(self, number, directory):
                return why
        return ""

    def remove(self) -> None:
        """Remove the files of the run and its directories.

        Raises:
            OSError: The file system refused, or something was put into a directory meanwhile.
        """
        hidden = tuple(_hidden(each, self.manifest.run_id) for each in self.directories)
        renamed: list[tuple[Path, Path]] = []
        try:
            for directory, new in zip(self.directories, hidden, strict=True):
                os.rename(directory, new)
                renamed.append((directory, new))
            for number, (directory, new) in enumerate(renamed):
                if set(os.listdir(new)) != set(self.names(number)):
                    # Another program came between the check and the new name, maybe a run.
                    raise OSError(f"{directory} was changed during its removal")
        except OSError:
            for directory, new in renamed:
                os.rename(new, directory)
            raise
        self.empty(hidden)

    def empty(self, hidden: Sequence[Path]) -> None:
        """Remove the files, the manifest last, and the directories that they are in by now."""
        for number in reversed(range(len(hidden))):
            with suppress(FileNotFoundError):
                # Held open, so that no link can be put in its place.
                descriptor = os.open(hidden[number], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    for name in self.names(number):
                        if "/" not in name and name not in (".", ".."):
                            with suppress(FileNotFoundError):
                                os.unlink(name, dir_fd=descriptor)
                finally:
                    os.close(descriptor)
                os.rmdir(hidden[number])


class EarlierTables(Struct, frozen=True, kw_only=True):
    """A finished run over several tables, in its own directory."""

    manifest: TablesManifest
    home: Path

    @property
    def directories(self) -> tuple[Path, ...]:
        return (self.home,)

    @property
    def tables(self) -> tuple[Path, ...]:
        return tuple(self.home / each.directory for each in self.manifest.tables)

    def why_kept(self, allowed: Places = ()) -> str:
        for entry, place in zip(self.manifest.tables, self.tables, strict=True):
            if not is_below(place, self.home):
                return f"{place} is not inside it"
            if digest_at_end(manifest_data(place)) != entry.digest:
                return f"{place} was unloaded again after the run"
            manifest = read_manifest(place)
            if len(directories_of(manifest, place)) != 1:
                return f"the run in {place} also has files in other directories"
            if why := why_not_ours(EarlierRun(manifest=manifest, directories=(place,)), 0, place):
                return why
        # The directories between the home and the directories of its tables.
        tables = set(self.tables)
        above = within(self.home, tables)
        for directory in sorted(above | {self.home}):
            for name in sorted(os.listdir(directory)):
                path = directory / name
                if path not in tables and path not in above and path != self.home / MANIFEST:
                    return f"{path} is not a table of the run"
        return ""

    def remove(self) -> None:
        """Remove the run.

        Raises:
            OSError: The file system refused, or something was put into the directory meanwhile.
        """
        hidden = _hidden(self.home, self.manifest.run_id)
        os.rename(self.home, hidden)
        moved = EarlierTables(manifest=self.manifest, home=hidden)
        try:
            why = moved.why_kept()
        except (OSError, UnloaderError) as error:
            why = str(error)
        if why:
            os.rename(hidden, self.home)
            raise OSError(f"{self.home} was changed during its removal: {why}")
        moved.empty()

    def empty(self) -> None:
        """Remove the remaining files of the run, and its directories."""
        for place in self.tables:
            if place.is_dir() and is_below(place, self.home) and (place / MANIFEST).exists():
                run = EarlierRun(manifest=read_manifest(place), directories=(place,))
                run.empty((place,))
            elif place.is_dir():
                os.rmdir(place)  # The removal was killed just there.
        _remove_empty(within(self.home, set(self.tables)))
        (self.home / MANIFEST).unlink()
        os.rmdir(self.home)


def found_at(path: Path) -> EarlierRun | EarlierTables | None:
    try:
        if tables := home_manifest(path):
            return EarlierTables(manifest=tables, home=path)
        manifest = read_manifest(path)
        directories = tuple(map(Path, directories_of(manifest, path)))
        return EarlierRun(manifest=manifest, directories=directories)
    except (UnloaderError, OSError):
        return None


def is_same_job(old: Manifest | TablesManifest, new: Manifest | TablesManifest) -> bool:
    """Return whether a run is complete and of the job of another one.

    Which tables a run over several has may differ.
    """
    sources = {(each.source.kind, each.source.location) for each in (old, new)}
    if old.status != "complete" or len(sources) > 1:
        return False
    if isinstance(old, TablesManifest) or isinstance(new, TablesManifest):
        both = isinstance(old, TablesManifest) and isinstance(new, TablesManifest)
        return both and old.options.to == new.options.to
    return (old.table, old.query) == (new.table, new.query)


def remove_older(new: Manifest | TablesManifest, allowed: Places, keep: int) -> list[str]:
    """Remove runs of the same job that are not among the newest; return messages."""
    parent, names = allowed[0]
    try:
        finish_removals(parent)
        found = [found_at(parent / name) for name in _directories(parent) if names.fullmatch(name)]
    except OSError as error:
        return [f"cannot look for earlier runs, so no run is removed: {error}"]
    others = [
        each
        for each in found
        if each is not None
        and each.manifest.run_id != new.run_id
        and is_same_job(each.manifest, new)
    ]
    # The id of a run begins with the time of its start.
    others.sort(key=lambda each: each.manifest.run_id, reverse=True)
    newer = sum(each.manifest.run_id > new.run_id for each in others)
    messages = []
    for each in reversed(others[newer + max(0, keep - 1 - newer) :]):
        what = f"run {each.manifest.run_id} in {each.directories[0]}"
        try:
            why = each.why_kept(allowed)
            if not why:
                each.remove()
        except (OSError, UnloaderError) as error:
            why = str(error)
        messages.append(_message(what, why, keep))
    ids = [each.manifest.run_id for each in others]
    return messages + _remove_unfinished(allowed[0], new, ids, keep)


def _message(what: str, why: str, keep: int) -> str:
    return f"{what} is kept: {why}" if why else f"removed {what}, because of --keep {keep}"


def finish_removals(parent: Path) -> None:
    """Finish removals in a directory that were killed."""
    for home in (parent / name for name in _directories(parent) if name.startswith(LEAVING)):
        with suppress(OSError, UnloaderError):
            run = found_at(home)
            if run is None:
                left = _run_at(home)
                if left is None:
                    os.rmdir(home)
                elif _is_hidden(home, left.run_id) and not _why_kept(left):
                    _empty(left)
            elif not _is_hidden(home, run.manifest.run_id):
                continue
            elif isinstance(run, EarlierTables):
                run.empty()
            else:
                others = (_hidden(each, run.manifest.run_id) for each in run.directories[1:])
                hidden = (home, *others)
                # Any user who may write beside the runs could have put it there, with any name in
                # its manifest.
                if all(map(_is_ours, filter(os.path.lexists, hidden))):
                    EarlierRun(manifest=run.manifest, directories=hidden).empty(hidden)


def why_not_ours(
    run: EarlierRun, number: int, directory: Path, beside: frozenset[str] = frozenset()
) -> str:
    """Return what in a directory of a run is not as the run has left it; empty if all is."""
    expected = {name for place, name in run.files if place == number}
    written = os.lstat(run.directories[0] / MANIFEST).st_mtime_ns
    files = run.manifest.files
    with os.scandir(directory) as entries:
        found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    for name in sorted(found.keys() - expected - beside):
        return f"{directory / name} is not a file of the run"
    for name in sorted(expected - found.keys()):
        return f"{directory / name} is missing"
    for name in sorted(expected - {MANIFEST}):
        status = found[name]
        # The manifest was written after every file. A checksum would mean to read all of them.
        changed = status.st_size != files[name].bytes or status.st_mtime_ns > written
        if changed or not stat.S_ISREG(status.st_mode):
            return f"{directory / name} was changed after the run"
    return ""


class UnfinishedRun(Struct, frozen=True, kw_only=True):
    """An interrupted run in a separate directory."""

    run_id: str
    place: Path
    tables: tuple[Path, ...]
    """The directories of its tables; the place itself for a run over one table."""
    ids: frozenset[str]
    """The run, and the runs that it replaced: `tables` has their publications."""


def _remove_unfinished(
    where: tuple[Path, re.Pattern[str]],
    new: Manifest | TablesManifest,
    finished: Sequence[str],
    keep: int,
) -> list[str]:
    """Remove interrupted runs of the same job that are not among the newest; return messages.

    Args:
        where: The directory of the runs, and the pattern of their names.
        new: The manifest of the new run.
        finished: The ids of the other finished runs of the job.
        keep: How many runs stay.
    """
    parent, names = where
    found = []
    for place in (parent / name for name in _directories(parent) if names.fullmatch(name)):
        with suppress(OSError, UnloaderError):
            run = _run_at(place)
            if run is not None and run.run_id < new.run_id and _is_same_job(run, new):
                found.append(run)
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
                continue  # It was interrupted while it was published, and is finished now.
            why = _why_kept(left)
            if not why:
                # Its directory gets another name first, so that no process can resume it.
                hidden = _hidden(left.place, left.run_id)
                os.rename(left.place, hidden)
                moved = _run_at(hidden)
                if moved is None:
                    os.rename(hidden, left.place)
                    raise OutputFailed("it was resumed or finished in the meantime")
                _empty(moved)
        except (OSError, UnloaderError) as error:
            why = str(error)
        messages.append(_message(what, why, keep))
    return messages


def _run_at(place: Path) -> UnfinishedRun | None:
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
            {who.run_id, *(each.run_id for each in tables), *options_of(record).replaces}
        ),
    )


def _is_same_job(run: UnfinishedRun, new: Manifest | TablesManifest) -> bool:
    """Return whether a run is of the job of a finished one, or has nothing to be resumed."""
    place = str(run.place)
    storage = storage_at(place)
    record = storage.record(place, RUN_RECORD)
    if not record:
        who = storage.who_was_here(place)
        if who is None or who.left.is_empty:
            return who is not None
        # It may be of a table whose run over several has no record any more.
        return bool(who.home) and not home_above(storage, place, who.run_id)
    if is_of_tables(record) != isinstance(new, TablesManifest):
        return False
    extract = first_of(record, place).extract
    if isinstance(new, TablesManifest):
        same = options_of(record).destination == new.options.to
    else:
        table = TableRecord(schema=extract.table.schema, name=extract.table.name)
        same = extract.query == new.query and (new.query is not None or table == new.table)
    source = (extract.source.kind, redact(extract.source.location))
    return same and source == (new.source.kind, new.source.location)


def _why_kept(run: UnfinishedRun) -> str:
    directories = {run.place, *run.tables}
    for table in sorted(directories - {run.place}):
        inside = table.is_relative_to(run.place)
        if not inside or (os.path.lexists(table) and not is_below(table, run.place)):
            return f"it also has files in {table}"
    directories |= within(run.place, directories)
    for directory in sorted(directories):
        if not directory.is_dir():
            continue
        for path in strangers(directory / RUN):
            return f"{path} is not a file of the run"
        inner = {each.name for each in directories if each.parent == directory}
        names = {
            name
            for name in os.listdir(directory)
            if name != RUN and not any(_HIDDEN + each in name for each in run.ids)
        } - inner
        if MANIFEST in names and directory in run.tables:
            manifest = read_manifest(directory)
            if manifest.run_id in run.ids:
                earlier = EarlierRun(manifest=manifest, directories=(directory,))
                if why := why_not_ours(earlier, 0, directory, beside=frozenset({RUN})):
                    return why
                continue
        for name in sorted(names):
            return f"{directory / name} is not a file of the run"
    return ""


def _empty(run: UnfinishedRun) -> None:
    """Remove the files of a run and its directories, the record of the run last."""
    others = [table for table in run.tables if table != run.place]
    for table in others:
        if not table.is_dir():
            continue
        clear([str(table)], dry_run=False)
        if (table / MANIFEST).exists():
            manifest = read_manifest(table)
            EarlierRun(manifest=manifest, directories=(table,)).empty((table,))
        else:
            os.rmdir(table)
    _remove_empty(within(run.place, set(others)))
    clear([str(run.place)], dry_run=False)
    os.rmdir(run.place)


def _directories(parent: Path) -> list[str]:
    """Return the names of the directories in a directory, in order; links are left out."""
    with os.scandir(parent) as entries:
        return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))


def _remove_empty(directories: set[Path]) -> None:
    for directory in sorted(directories, key=lambda path: -len(path.parts)):
        if directory.is_dir():
            os.rmdir(directory)


def _hidden(directory: Path, run_id: str) -> Path:
    return directory.with_name(f"{LEAVING}{run_id}-{directory.name}")


def _is_hidden(home: Path, run_id: str) -> bool:
    """Return whether a directory of this user has the name that a removal of a run gives it."""
    return home.name.startswith(f"{LEAVING}{run_id}-") and _is_ours(home)


def _is_ours(path: Path) -> bool:
    """Return whether a path is a directory of this user, and no link to one."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def is_below(place: Path, home: Path) -> bool:
    """Return whether a directory is inside another one, without a link on the way to it."""
    parts = place.relative_to(home).parts
    if not parts or ".." in parts:
        return False
    steps = [home.joinpath(*parts[: number + 1]) for number in range(len(parts))]
    return all(stat.S_ISDIR(os.lstat(step).st_mode) for step in steps)


def within(home: Path, tables: set[Path]) -> set[Path]:
    """Return the directories between a home and the directories of its tables."""
    return {
        parent for table in tables for parent in table.parents if parent.is_relative_to(home)
    } - {home}


def clear(places: Sequence[str], *, dry_run: bool) -> Cleaning:
    """Remove what dead runs have left at places; see `Storage.clear`.

    For a run over several tables these are the staged files of each table. The home comes last: it
    records the tables.

    Raises:
        OutputFailed: A run is writing there.
    """
    gone: list[Cleaning] = []
    wider: dict[str, None] = {}
    for place in places:
        storage, manifest = storage_at(place), b""
        with suppress(OSError):
            manifest = storage.read(place, MANIFEST)
        if b'"lake_table"' in manifest:
            from unloader.lakehouse.lake_runs import removed as removed_from_lake

            # The run is complete, for a table of a lakehouse, and perhaps not part of it.
            if done := removed_from_lake(place, dry_run=dry_run):
                gone.append(done)
                continue
        # If this look fails, the clearing itself reports the obstacle.
        with suppress(OSError):
            who = storage.who_was_here(place, counted=False)
            home = ""
            if who is not None and who.is_running:
                home = home_above(storage, place, who.run_id)
            if who is not None and home:
                # A running run stays untouched: the clearing of its home is refused.
                raise OutputFailed(
                    f"run {who.run_id} over several tables is writing to {place}",
                    f"wait until it ends, or end it with: unloader stop {shlex.quote(home)}",
                )
            if who is not None and who.run_id and not who.is_running:
                for table in recorded_tables(storage.record(place, RUN_RECORD), place):
                    for directory in table.directories:
                        whose = storage.who_was_here(directory, counted=False)
                        if whose is not None and whose.run_id in (who.run_id, table.run_id):
                            wider[directory] = None
        wider.setdefault(place)
    removed = tuple(left for each in gone for left in each.removed)
    if gone and not wider:
        return replace(gone[0], removed=removed)
    others = storage_at(next(iter(wider), "")).clear(tuple(wider), dry_run=dry_run)
    return replace(others, removed=(*removed, *others.removed))
