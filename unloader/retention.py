"""What follows a publication: the link to the run, and the removal of older runs of the same job.

If the directory of all tables is another one each night, it is kept or removed as a whole. If the
directory of each table is, each table has a separate link and earlier runs.

A directory is removed only if all its contents belong to one run. This is a finished run of the
same job, unchanged since publication, or an interrupted run. Anything else stays, and the reason is
reported. Interrupted runs count, too: without that their staged files would fill the disk.

A removal is atomic for readers: the directories are renamed first, so that no reader finds a part
of a run. If something has been put into one meanwhile, all get their names back. The manifest, or
the record of an interrupted run, goes last, so that a removal that is killed can be finished.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import FollowUpFailed, OutputFailed, UnloaderError, UsageError
from unloader.events import Notice, Observer
from unloader.manifest.model import Manifest, TableRecord, TablesManifest
from unloader.manifest.read import (
    digest_at_end,
    directories_of,
    manifest_data,
    parse_run,
    read_manifest,
)
from unloader.redaction import redact
from unloader.request.name_templates import beside, home_template, is_dated
from unloader.resolve.places import directory_values, home_above, is_followed
from unloader.resolve.resolved import (
    ResolvedTable,
    first_of,
    is_of_tables,
    options_of,
    recorded_tables,
)
from unloader.storage.directories.directory_publishing import strangers
from unloader.storage.place_names import absolute
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN, RUN_RECORD, Cleaning
from writers.files.publish import INDEX

if TYPE_CHECKING:
    from unloader.selection.asked import TablesRequest


class Following(Struct, kw_only=True):
    """The links and removals that are requested, and the first one that failed."""

    run: ResolvedTable
    """Any of the tables with such options: these are the same for all of them."""
    home: str
    whole: bool
    """They apply to the directory of all tables, and not to each table."""
    failed: FollowUpFailed | None = None

    @classmethod
    def of_run(
        cls, runs: Sequence[ResolvedTable], home: str, template: str | None = None
    ) -> Following:
        """Return what follows a run; `template` is `--to` of several tables, else None."""
        followed = (run for run in runs if any(is_followed(each.options) for each in run.outputs))
        whole = template is not None and is_dated(home_template(template))
        return cls(run=next(followed, runs[0]), home=home, whole=whole)

    @classmethod
    def check_asked(cls, asked: TablesRequest) -> None:
        """Refuse, before the source is opened, to remove all tables as a whole beside routes."""
        requests = [entry.request for entry in asked.entries if len(entry.request.of_outputs()) > 1]
        outputs = [each.output for request in requests for each in request.of_outputs()]
        whole = is_dated(home_template(asked.options.destination))
        if whole and any(map(is_followed, outputs)):
            raise UsageError(
                "--keep and --latest-link apply here to the directory of all tables, but some "
                "routes of a table are outside it",
                "apply them to each table: --to '/extract/{table}/{date}'",
            )

    def check_before(self) -> None:
        """Raise OutputFailed, before anything is read, if the name of a link is taken."""
        for output in self.run.outputs:
            link = output.options.latest_link
            if link is not None:
                _link_of(self.home if self.whole else output.options.destination, link)

    def after(
        self, run: ResolvedTable, manifest: Manifest | TablesManifest, observe: Observer
    ) -> None:
        """Do what follows the publication of one output of a table, or of all; never raises."""
        if self.whole != isinstance(manifest, TablesManifest):
            return
        try:
            place = self.home if self.whole else run.output.options.destination
            follow(run, manifest, place, observe)
        except FollowUpFailed as error:
            self.failed = self.failed or error


def follow(
    run: ResolvedTable, manifest: Manifest | TablesManifest, place: str, observe: Observer
) -> None:
    """Switch the link to a published run, then remove runs older than `--keep`.

    What cannot be removed stays, and is reported. A resumed run may be older than another one by
    now: the link stays with that one. If it cannot be switched, the error is FollowUpFailed, and
    nothing is removed.
    """
    output = run.output.options
    if output.latest_link is not None:
        link = Path(place.rstrip("/")).parent / output.latest_link
        there = found_at(link)
        newer = there is not None and there.manifest and there.run_id > manifest.run_id
        if there is not None and newer and is_same_job(there, manifest):
            observe(Notice(text=f"{link} still leads to run {there.run_id}, which is newer"))
        else:
            _switch(link, place, manifest.run_id)
    if output.keep is None:
        return
    if isinstance(manifest, TablesManifest):
        places: tuple[str, ...] = (home_template(run.request.output.destination),)
        is_verified = all(each.verified == "ok" for each in manifest.tables)
        what = "not all tables of this run could be verified"
    else:
        places, is_verified = run.request.output.destinations, manifest.verified.result == "ok"
        what = "the rows of this run could not be verified"
    if not is_verified:
        observe(Notice(text=f"no earlier run is removed, because {what}"))
        return
    values = directory_values(run.extract, run.run_id)
    found = (beside(each, values) for each in places)
    allowed = tuple((Path(parent), names) for parent, names in found)
    for text in remove_older(manifest, allowed, output.keep):
        observe(Notice(text=text))


def _link_of(directory: str, name: str) -> Path:
    """Return the path of a link; raise OutputFailed if something else has that name."""
    link = Path(directory.rstrip("/")).parent / name
    if os.path.lexists(link) and not link.is_symlink():
        raise OutputFailed(
            f"{link} exists and is not a symbolic link",
            "remove it, or choose another name with --latest-link",
        )
    return link


def _switch(link: Path, directory: str, run_id: str) -> None:
    """Let the link lead to a directory; a reader finds the former run or the new one."""
    made = link.with_name(f".{link.name}-{run_id}")
    name = os.path.basename(directory.rstrip("/"))
    try:
        _link_of(directory, link.name)
        with suppress(FileNotFoundError):
            os.unlink(made)  # Of this run, which was killed just here.
        os.symlink(name, made)
        os.replace(made, link)
    except (OSError, OutputFailed) as error:
        with suppress(OSError):
            os.unlink(made)
        why = error.strerror if isinstance(error, OSError) else error.message
        raise FollowUpFailed(
            f"the run is complete in {directory}, but the link {link} still leads to another "
            f"place: {why}",
            f"set it by hand: ln -sfn {name} {link}",
        ) from error


LEAVING = ".removed-"
"""Start of the name of a directory while its files are removed."""

_HIDDEN = ".unloader-"
"""In the names of directories in which a publication was prepared."""

Places = tuple[tuple[Path, re.Pattern[str]], ...]
"""For each directory of a run the parent that runs of the job are in, and what its name matches."""


class EarlierRun(Struct, frozen=True, kw_only=True):
    """A finished or interrupted run in separate directories."""

    run_id: str
    manifest: Manifest | TablesManifest | None
    """None for an interrupted run."""
    places: tuple[Path, ...]
    """The first has the manifest or the record. Only a finished run of one table has others."""
    tables: tuple[Path, ...] = ()
    """The directories of the tables; of an interrupted run of one table, its directories."""
    ids: frozenset[str] = frozenset()
    """Of an interrupted run: the run, and the runs that it replaced. `tables` has their
    publications."""

    def check(self) -> None:
        """Raise OSError if something in its directories is not as the run has left it."""
        home, manifest = self.places[0], self.manifest
        if isinstance(manifest, Manifest):
            for place in self.places:
                _check_files(manifest, place, self.places)
            return
        tables = sorted({*self.tables} - {home})
        for table in tables if manifest is None else ():
            if not table.is_relative_to(home) or (
                os.path.lexists(table) and not _is_below(table, home)
            ):
                raise OSError(f"it also has files in {table}")
        for entry, table in zip(manifest.tables, self.tables, strict=True) if manifest else ():
            if not _is_below(table, home):
                raise OSError(f"{table} is not inside it")
            if digest_at_end(manifest_data(table)) != entry.digest:
                raise OSError(f"{table} was unloaded again after the run")
            if len(directories_of(read_manifest(table), table)) != 1:
                raise OSError(f"the run in {table} also has files in other directories")
        directories = {home, *tables, *_between(home, tables)}
        for directory in filter(Path.is_dir, sorted(directories)):
            names = set(os.listdir(directory))
            names -= {each.name for each in directories if each.parent == directory}
            if manifest is None:
                for path in strangers(directory / RUN):
                    raise OSError(f"{path} is not a file of the run")
                prepared = tuple(_HIDDEN + each for each in self.ids)
                names = {each for each in names if not any(p in each for p in prepared)} - {RUN}
            elif directory == home:
                names -= {MANIFEST}
            if MANIFEST in names and directory in self.tables:
                published = read_manifest(directory)
                if manifest is not None or published.run_id in self.ids:
                    beside = frozenset() if manifest is not None else frozenset({RUN})
                    _check_files(published, directory, (directory,), beside)
                    continue
            for name in sorted(names):
                raise OSError(f"{directory / name} is not a file of the run")

    def remove(self) -> None:
        """Remove files and directories of the run; OSError if something was put there meanwhile."""
        renamed: list[tuple[Path, Path]] = []
        try:
            for place in self.places:
                os.rename(place, hidden := _hidden(place, self.run_id))
                renamed.append((place, hidden))
            # Another program may have come between the check and the new name, maybe a run.
            try:
                moved = found_at(renamed[0][1])
                if moved is None or (moved.run_id, type(moved.manifest)) != (
                    self.run_id,
                    type(self.manifest),
                ):
                    raise OSError("it was resumed or finished")
                moved = replace(moved, places=tuple(hidden for _, hidden in renamed))
                moved.check()
            except OSError as error:
                raise OSError(f"{self.places[0]} was changed during its removal: {error}") from None
        except (OSError, UnloaderError):
            for place, hidden in renamed:
                os.rename(hidden, place)
            raise
        moved.empty()

    def empty(self) -> None:
        """Remove the remaining files of the run and its directories; see `LEAVING`."""
        home, manifest = self.places[0], self.manifest
        if isinstance(manifest, Manifest):
            _remove_files(manifest, self.places)
            return
        tables = sorted({*self.tables} - {home})
        for table in tables:
            if not table.is_dir() or not _is_below(table, home):
                continue
            if manifest is None:
                clear([str(table)], dry_run=False)
            if (table / MANIFEST).exists():
                _remove_files(read_manifest(table), (table,))
            else:
                os.rmdir(table)  # Maybe the removal was killed just there.
        for directory in sorted(_between(home, tables), key=lambda path: -len(path.parts)):
            if directory.is_dir():
                os.rmdir(directory)
        if manifest is None:
            clear([str(home)], dry_run=False)
        else:
            (home / MANIFEST).unlink()
        os.rmdir(home)


def _names_of(manifest: Manifest, number: int) -> list[str]:
    """Return the names of the files in one directory of a run, the manifest last."""
    names = [name for name, file in manifest.files.items() if file.directory == number]
    return [*names, MANIFEST] if number == 0 else names


def _remove_files(manifest: Manifest, places: Sequence[Path]) -> None:
    for number, place in reversed(tuple(enumerate(places))):
        with suppress(FileNotFoundError):
            # Held open, so that no link can be put in its place.
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                for name in _names_of(manifest, number):
                    folder, _, index = name.partition("/")
                    if index == INDEX and folder not in (".", ".."):
                        with suppress(FileNotFoundError):
                            shutil.rmtree(folder, dir_fd=descriptor)
                    elif "/" not in name and name not in (".", ".."):
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            os.rmdir(place)


def _check_files(
    manifest: Manifest,
    directory: Path,
    places: Sequence[Path],
    beside: frozenset[str] = frozenset(),
) -> None:
    number, files = places.index(directory), manifest.files
    expected, written = set(_names_of(manifest, number)), os.lstat(places[0] / MANIFEST).st_mtime_ns
    sizes = {name: files[name].bytes for name in expected - {MANIFEST}}
    with os.scandir(directory) as entries:
        found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    for index in sorted(name for name in expected if "/" in name):
        folder = index.partition("/")[0]
        if stat.S_ISDIR(found.pop(folder).st_mode if folder in found else 0):
            for within, _, names in os.walk(directory / folder):
                paths = [Path(within, name) for name in names]
                found |= {str(each.relative_to(directory)): os.lstat(each) for each in paths}
        if index in found:
            from writers.files.read_back import listed

            lines = listed(directory / index)
            sizes |= {f"{folder}/{each.name}": each.bytes for each in lines}
    expected |= sizes.keys()
    for name in sorted(found.keys() - expected - beside):
        raise OSError(f"{directory / name} is not a file of the run")
    for name in sorted(expected - found.keys()):
        raise OSError(f"{directory / name} is missing")
    for name in sorted(expected - {MANIFEST}):
        status = found[name]
        # The manifest was written after every file. A checksum would mean to read all of them.
        changed = status.st_size != sizes[name] or status.st_mtime_ns > written
        if changed or not stat.S_ISREG(status.st_mode):
            raise OSError(f"{directory / name} was changed after the run")


def found_at(place: Path) -> EarlierRun | None:
    """Return the run in a directory; None without a run, or if it is active or cannot be read."""
    with suppress(UnloaderError, OSError):
        manifest = parse_run(manifest_data(place), place / MANIFEST)
        if isinstance(manifest, TablesManifest):
            tables = tuple(place / each.directory for each in manifest.tables)
            return EarlierRun(
                run_id=manifest.run_id, manifest=manifest, places=(place,), tables=tables
            )
        places = tuple(map(Path, directories_of(manifest, place)))
        return EarlierRun(run_id=manifest.run_id, manifest=manifest, places=places)
    with suppress(UnloaderError, OSError):
        return _interrupted_at(place)
    return None


def _interrupted_at(place: Path) -> EarlierRun | None:
    place = Path(absolute(str(place)))
    storage = storage_at(str(place))
    who = storage.who_was_here(str(place), counted=False)
    if who is None or not who.run_id or who.is_running or (place / MANIFEST).exists():
        return None
    record = storage.record(str(place), RUN_RECORD)
    tables = recorded_tables(record, str(place))
    directories = [Path(each) for table in tables for each in table.directories]
    replaced = options_of(record).replaces
    return EarlierRun(
        run_id=who.run_id,
        manifest=None,
        places=(place,),
        tables=tuple(directories) or (place, *map(Path, who.places[1:])),
        ids=frozenset({who.run_id, *(each.run_id for each in tables), *replaced}),
    )


def is_same_job(old: EarlierRun, new: Manifest | TablesManifest) -> bool:
    """Return whether a run is of the job of a finished run, or has no files."""
    several, manifest, to = isinstance(new, TablesManifest), old.manifest, ""
    had: tuple[TableRecord | None, str | None] = (None, None)
    if manifest is None:
        place = str(old.places[0])
        storage = storage_at(place)
        record = storage.record(place, RUN_RECORD)
        if not record:
            who = storage.who_was_here(place)
            if who is None or who.left.is_empty:
                return who is not None
            # It may be of a table whose run over several has no record any more.
            return bool(who.home) and not home_above(storage, place, who.run_id)
        if is_of_tables(record) != several:
            return False
        extract = first_of(record, place).extract
        source = (extract.source.kind, redact(extract.source.location))
        to = options_of(record).destination
        table = TableRecord(schema=extract.table.schema, name=extract.table.name)
        had = (None if extract.query is not None else table, extract.query)
    else:
        if manifest.status != "complete" or isinstance(manifest, TablesManifest) != several:
            return False
        source = (manifest.source.kind, manifest.source.location)
        if isinstance(manifest, TablesManifest):
            to = manifest.options.to
        else:
            had = (manifest.table, manifest.query)
    if source != (new.source.kind, new.source.location):
        return False
    if isinstance(new, TablesManifest):
        return to == new.options.to
    return had == (new.table, new.query)


def remove_older(new: Manifest | TablesManifest, allowed: Places, keep: int) -> list[str]:
    """Remove runs of the same job that are not among the newest; return messages."""
    parent, names = allowed[0]
    runs = []
    try:
        finish_removals(parent)
        for name in filter(names.fullmatch, _directories(parent)):
            run = found_at(parent / name)
            if run is None or run.run_id == new.run_id:
                continue
            is_older = run.manifest is not None or run.run_id < new.run_id
            with suppress(OSError, UnloaderError):
                if is_older and is_same_job(run, new):
                    runs.append(run)
    except OSError as error:
        return [f"cannot look for earlier runs, so no run is removed: {error}"]
    # The id of a run begins with the time of its start. A finished run is not removed because
    # interrupted ones are newer.
    finished = sorted((each.run_id for each in runs if each.manifest is not None), reverse=True)
    newer = sum(each > new.run_id for each in finished)
    newest = sorted({new.run_id, *(each.run_id for each in runs)}, reverse=True)
    stay = {*finished[: max(newer, keep - 1)], *newest[:keep]}
    messages = []
    for run in sorted(runs, key=lambda each: (each.manifest is None, each.run_id)):
        if run.run_id in stay:
            continue
        what = f"run {run.run_id} in {run.places[0]}"
        try:
            if run.manifest is None:
                what = f"interrupted {what}"
                places = [str(each) for each in (run.places[0], *run.tables)]
                storage_at(places[0]).complete(*places)
                left = _interrupted_at(run.places[0])
                if left is None:
                    continue  # It was interrupted while it was published, and is finished now.
                run = left
            else:
                _check_places(run, allowed)
            run.check()
            run.remove()
            messages.append(f"removed {what}, because of --keep {keep}")
        except (OSError, UnloaderError) as error:
            messages.append(f"{what} is kept: {error}")
    return messages


def _check_places(run: EarlierRun, allowed: Places) -> None:
    if len(allowed) != len(run.places):
        raise OSError("it is in other directories than the new run")
    for directory, (parent, names) in zip(run.places, allowed, strict=True):
        if not directory.is_dir() or directory.is_symlink():
            raise OSError(f"{directory} is not a directory")
        is_beside = False
        with suppress(OSError):
            is_beside = os.path.samefile(directory.parent, parent)
        if not is_beside or not names.fullmatch(directory.name):
            raise OSError(f"{directory} is not next to the new run")


def finish_removals(parent: Path) -> None:
    for home in (parent / name for name in _directories(parent) if name.startswith(LEAVING)):
        with suppress(OSError, UnloaderError):
            run = found_at(home)
            if run is None:
                os.rmdir(home)
                continue
            places = (home, *(_hidden(each, run.run_id) for each in run.places[1:]))
            run = replace(run, places=places)
            # Any user who may write beside the runs could have put it there, with any name in its
            # manifest.
            ours = all(map(_is_ours, filter(os.path.lexists, places)))
            if home.name.startswith(f"{LEAVING}{run.run_id}-") and ours:
                if run.manifest is None:
                    run.check()
                run.empty()


def _directories(parent: Path) -> list[str]:
    """Return the names of the directories in a directory, in order; links are left out."""
    with os.scandir(parent) as entries:
        return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))


def _hidden(directory: Path, run_id: str) -> Path:
    return directory.with_name(f"{LEAVING}{run_id}-{directory.name}")


def _is_ours(path: Path) -> bool:
    """Return whether a path is a directory of this user, and no link to one."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _is_below(place: Path, home: Path) -> bool:
    """Return whether a directory is inside another one, without a link on the way to it."""
    parts = place.relative_to(home).parts if place.is_relative_to(home) else ()
    if not parts or ".." in parts:
        return False
    steps = [home.joinpath(*parts[: number + 1]) for number in range(len(parts))]
    return all(stat.S_ISDIR(os.lstat(step).st_mode) for step in steps)


def _between(home: Path, tables: Iterable[Path]) -> set[Path]:
    """Return the directories between a home and the directories of its tables."""
    above = {parent for table in tables for parent in table.parents}
    return {parent for parent in above if parent.is_relative_to(home)} - {home}


def clear(places: Sequence[str], *, dry_run: bool) -> Cleaning:
    """Remove what dead runs have left at places; OutputFailed if a run is writing there.

    For several tables these are also the staged files of each. The home lists them: it comes last.
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
