"""The directories of one run, taken together and published together; see `RunStorage`.

One directory is the usual case. Each of several has its own lock and its own staged files, so that
a file never crosses from one file system to another. The records and the manifest are in the first.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_access import Access
from unloader.storage.directories.directory_journal import (
    SHORT_SECONDS,
    Journal,
    remove_unsynced,
)
from unloader.storage.directories.directory_leftovers import STAGED, staged_files, strangers
from unloader.storage.directories.directory_lock import LOCK, Holder, read_record, read_requests
from unloader.storage.directories.directory_publishing import (
    Placed,
    Publication,
    Share,
    carrying_out,
    check_real_room,
    read_publication,
    take_back,
    twin_name,
)
from unloader.storage.directories.directory_recovery import complete, is_under_way
from unloader.storage.directories.directory_staging import RunDirectory, check_different
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    RUN,
    RUN_RECORD,
    Claim,
    Index,
    Move,
    Place,
    ReadIndex,
    RunStorage,
    Staging,
    boot_id,
    host_name,
    record_name,
)
from writers.errors import WriteError
from writers.files.publish import NamedLater, check_moves, remove_staged, write_atomically
from writers.files.regular import open_regular, read_regular
from writers.files.syncing import Steps, Wanted, opened_for_sync
from writers.model import UncompletedUpload

_TRIES = 3
_FILE_AND_MANIFEST = 2


class RunDirectories(RunStorage):
    """One or more directories, taken by one run; see `RunStorage`."""

    def __init__(self, claim: Claim) -> None:
        """Lock all the directories, by the rules of `Storage.take`.

        Raises:
            OutputFailed: A directory cannot be taken.
        """
        paths = [Path(place) for place in claim.places]
        resolved = check_different(paths)
        self.places = tuple(Place(name=str(path), address=os.path.abspath(path)) for path in paths)
        self.all: tuple[RunDirectory, ...]
        self.notices: tuple[str, ...] = ()
        self._one_of_many = bool(claim.home)
        self._shared = claim.shared
        self._publishing = False
        self._journals: dict[str, Journal] = {}
        self._unsynced: dict[tuple[int, str], None] = {}
        """Staged files that may not be synced, in their order."""
        self._is_shown, self._show_lock = True, threading.Lock()
        self._access = Access.of(claim.mode, claim.owner_group)
        self._me = Holder(
            run_id=claim.run_id or os.urandom(6).hex(),
            pid=os.getpid(),
            directories=resolved,
            host=host_name(),
            boot_id=boot_id(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            home=os.path.abspath(claim.home) if claim.home else "",
        )
        with self._take(paths) as undo:
            for directory in () if claim.overwrite else self.all:
                directory.check_free(shared=claim.shared)
            # A run that cannot be replaced is refused before the work.
            self._earlier = _EarlierRuns(paths, claim.read_index)
            for directory in self.all:
                with directory.refused("prepare"):
                    if claim.resumed:
                        directory.resume(self._me, claim.is_record_of_it)
                        continue
                    left = directory.begin(
                        self._me,
                        durable=not self._one_of_many,
                        flat=self._one_of_many and len(self.all) == 1,
                        kept=(RUN_RECORD,) if claim.keeps_record else (),
                    )
                    self.notices += () if left.is_empty else (f"removed {left.text()}",)
            self.notices += tuple(
                f"kept {path}: no run wrote it"
                for directory in self.all
                if not directory.is_new
                for path in strangers(directory.room)
            )
            undo.pop_all()

    def _take(self, paths: Sequence[Path]) -> ExitStack:
        """Take all directories when nothing is being published into them; return the undo."""
        for _ in range(_TRIES):
            for path in () if self._one_of_many else paths:
                self.notices += tuple(text for run in complete(path) for text in run.messages)
            with ExitStack() as undo:
                self.all = ()
                for path in paths:
                    directory = RunDirectory(path, self._access)
                    undo.callback(directory.close)
                    undo.callback(directory.give_back)
                    self.all = (*self.all, directory)
                # Another run may have begun to publish, and died, before the locks were ours.
                if not any(map(self._is_under_way, self.all)):
                    return undo.pop_all()
        raise OutputFailed(
            f"another run is being published into {' or '.join(str(path) for path in paths)}",
            "wait until it ends, then start again",
        )

    def _is_under_way(self, directory: RunDirectory) -> bool:
        # A new directory has no record and no twin.
        if self._one_of_many and directory.is_new:
            return False
        # A look at the twins of a thousand tables would list a thousand names for each.
        return is_under_way(directory.path, beside=not self._one_of_many)

    @property
    def first(self) -> RunDirectory:
        """The directory of the records and the manifest."""
        return self.all[0]

    def check_names(self, finals: Iterable[tuple[int, str]]) -> None:
        """Check that no file has one of these names, except files of earlier runs."""
        for number, name in finals:
            path = f"{self.all[number].path}/{name}"
            if name not in self._earlier.files[number] and os.path.lexists(path):
                raise OutputFailed(
                    f"{path} already exists, and no earlier run wrote it",
                    "move it away, or choose another --to or --file-name",
                )

    def staging(self, place: int) -> Staging:
        """Return a directory on the file system of the final files."""
        staged = str(self.all[place].staged)
        return Staging(label=staged, directory=staged)

    def marks(self) -> tuple[str, ...]:
        """Return the locks, which record the run."""
        return tuple(os.path.abspath(each.room / LOCK) for each in self.all)

    def check(self) -> None:
        """Do nothing: the workers notice a lost directory."""

    def open_staged(self, place: int, name: str) -> IO[bytes]:
        """Make a file in the directory of staged files."""
        return open(self.staged_file(place, name), "xb")

    def staged_file(self, place: int, name: str) -> Path:
        """Return the path of a staged file."""
        return self.all[place].staged / name

    def keep(self, name: str, data: bytes) -> None:
        """Write a record into the first directory's `_run`, synced."""
        write_atomically(self.first.room / record_name(name), data)
        if name in self._journals:
            # It has the file that was there before.
            self._journals.pop(name).close()

    def recorded(self, name: str) -> bytes:
        """Return a record from the first directory's `_run`."""
        with self.first.refused("read"):
            return read_record(self.first.room, record_name(name))

    def sync_later(self, files: Iterable[tuple[int, str]]) -> None:
        """Sync staged files before the journal's next line."""
        new = dict.fromkeys(files)
        self._unsynced |= new
        paths = [self.staged_file(place, name) for place, name in new]
        self._journal(JOURNAL).sync_before(paths)

    def append(self, name: str, line: bytes) -> None:
        """Append to a record in the first directory's `_run`."""
        journal = self._journal(name)
        with self.first.refused("write the journal in"):
            journal.append(line)

    def _journal(self, name: str) -> Journal:
        if name not in self._journals:
            with self.first.refused("write the journal in"):
                self._journals[name] = Journal(
                    self.first.room / record_name(name),
                    self._apart(),
                    self.all,
                    patience_seconds=SHORT_SECONDS if self.first.staged == self.first.room else 0.0,
                )
        return self._journals[name]

    def _apart(self) -> list[Path]:
        """Return the directories of staged files, except a `_run` with staged files."""
        return [each.staged for each in self.all if each.staged != each.room]

    def compare_upload(self, place: int, upload: UncompletedUpload) -> None:
        """Refuse: directories have no uploads."""
        raise WriteError(f"{upload.name} is not in an object store.", "unload it again.")

    def discard_others(
        self, kept: Collection[tuple[int, str]], uploads: Collection[str] = ()
    ) -> None:
        """Remove all other staged files."""
        stay = frozenset(kept)
        for number, directory in enumerate(self.all):
            with directory.refused("clear"):
                for entry in staged_files(directory.room):
                    if (number, entry.name) not in stay:
                        os.unlink(entry.path)

    def show(self, data: bytes) -> None:
        """Replace the status record in the first directory's `_run`, unsynced."""
        with self._show_lock:
            if not self._is_shown:
                return
            try:
                self.first.status.replace(data)
            except FileNotFoundError:
                # A publication may move the `_run` before the first record.
                if not self._publishing:
                    raise

    def stop_asked(self) -> bool:
        """Return whether a file in the first directory's `_run` asks for the end."""
        return read_requests(self.first.room, self._me).stop

    def wish(self) -> bytes:
        """Return the other settings that the file asks for."""
        return read_requests(self.first.room, self._me).change.encode()

    def discard(self, *stems: str) -> None:
        """Remove the staged files with these stems."""
        for directory in self.all:
            remove_staged(directory.staged, stems)

    def committing(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = lambda: None
    ) -> Steps[tuple[str, ...]]:
        """Publish: give every staged file its final name, the manifest last."""
        for directory in self.all:
            if not directory.is_held(self._me.run_id):
                raise OutputFailed(
                    f"{directory.room / LOCK} was removed, replaced or made unreadable while the "
                    "run was writing, so nothing is published",
                    "find out which program did this, and unload again; the files of this run "
                    f"are in {directory.staged}, if that directory still exists",
                )
        self._earlier.check_unchanged([directory.staged for directory in self.all])
        for number, directory in enumerate(self.all):
            ours = [(move.staged, move.final) for move in moves if move.place == number]
            check_moves(directory.staged, ours, directory.path, self._earlier.files[number])
        for journal in self._journals.values():
            # From here on the record of the publication replaces the journal's lines.
            with self.first.refused("write the journal in"):
                journal.rest()
        for move in moves if not self._access.is_usual else ():
            self._access.give(self.staged_file(move.place, move.staged))
        with ExitStack() as opened:
            wanted = self._write_manifest(moves, manifest, opened)
            publication = self._publication(moves)
            for share in publication.shares:
                check_real_room(publication, share.room)
            self._publishing = True
            waiting = [then]

            def clearing() -> None:
                while waiting:
                    waiting.pop()()
                self._show_no_more()

            try:
                began = time.monotonic()
                yield from self._on_record(publication, wanted, moves)
                for directory in self.all:
                    directory.is_durable(began)
                # Until `clearing` machines that the lock does not reach see the status.
                messages = yield from carrying_out(publication, clearing)
                self._check_out(manifest)
                return messages
            except BaseException as error:
                self._take_back(publication, error)
                with self.first.refused("publish in"):
                    raise

    def _write_manifest(
        self, moves: Sequence[Move], manifest: bytes, opened: ExitStack
    ) -> tuple[Wanted, ...]:
        """Write the manifest into `_run`; return the files to sync before the record.

        After a power cut the files in the record must be found by their names, with their bytes.
        The manifest has its name in `_run` before the record exists, and means nothing until then.
        """
        file = NamedLater(self.first.room / MANIFEST, manifest)
        opened.callback(file.close)
        try:
            file.name()
        except WriteError:
            file.drop()
            raise
        self._access.give(file.path)
        way = [each for directory in self.all for each in directory.way()]
        folders = [*self._apart(), *(each.room for each in self.all)]
        unsynced = [
            opened_for_sync(self.staged_file(move.place, move.staged), opened)
            for move in moves
            if (move.place, move.staged) in self._unsynced
        ]
        return (*way, *folders, *unsynced, file.descriptor)

    def _publication(self, moves: Sequence[Move]) -> Publication:
        shares, replaced = [], self._earlier.replaced()
        for number, directory in enumerate(self.all):
            room, here = directory.room, Path(os.path.realpath(directory.path))
            files = []
            for move in moves:
                if move.place == number:
                    path = directory.staged / move.staged
                    source = move.staged if path.parent == room else f"{STAGED}/{move.staged}"
                    files.append(Placed(source, move.final, os.stat(path).st_size))
            if directory is self.first:
                files.append(Placed(MANIFEST, MANIFEST, os.stat(room / MANIFEST).st_size))
            # Files of others in a shared directory must not move. And a new directory of one of
            # many tables with one file and the manifest needs no twin: readers cannot see half of
            # it, and this takes fewer steps.
            few = self._one_of_many and directory.is_new and len(files) <= _FILE_AND_MANIFEST
            shares.append(
                Share(
                    path=str(here),
                    twin="" if self._shared or few else twin_name(here, self._me.run_id),
                    files=tuple(files),
                    replaced=tuple(sorted(replaced[number])),
                )
            )
        owners = frozenset().union(*(directory.owners for directory in self.all))
        return Publication(run_id=self._me.run_id, shares=tuple(shares), owners=owners)

    def _on_record(
        self, publication: Publication, wanted: Sequence[Wanted], moves: Sequence[Move]
    ) -> Steps[None]:
        """Write the record of the publication, after a sync of all that it names."""
        try:
            yield wanted
        except (OSError, WriteError):
            remove_unsynced(
                self.staged_file(move.place, move.staged)
                for move in moves
                # It is unknown whether the disk has them.
                if (move.place, move.staged) in self._unsynced
            )
            raise
        yield from publication.writing()

    def _check_out(self, manifest: bytes) -> None:
        """Check that readers find this run now."""
        path = f"{self.first.path}/{MANIFEST}"
        try:
            with open(open_regular(path), "rb", buffering=0) as file:
                found = "" if file.read(len(manifest) + 1) == manifest else "its content differs"
        except OSError as error:
            found = repr(error)
        if found:
            raise OutputFailed(
                f"after the publication, {path} is not the manifest of this run: {found}",
                "find out which program changes files there, then unload again",
            )

    def _take_back(self, publication: Publication, error: BaseException) -> None:
        """Undo a publication after an error.

        Raises:
            OutputFailed: It cannot be undone; the record stays, so that it can be completed.
        """
        try:
            # The record shows which directories got their files one by one after all.
            rooms = (publication.home.room, publication.home.beside / RUN)
            read = (read_publication(room, publication.owners) for room in rooms)
            known = [found for found in read if found is not None]
            take_back(known[0] if known else publication)
            self._publishing = False
        except OSError:
            raise OutputFailed(
                f"publishing in {self.first.path} was interrupted: {error}",
                "fix the cause, then complete the publication with: unloader verify "
                f"{self.first.path}",
            ) from error

    def abandon(self, manifest: bytes | None) -> None:
        """Keep the staged files with a partial manifest, or remove everything."""
        if self._publishing:
            # The publication on record needs the manifest that is there.
            return
        self._show_no_more()
        # A directory that was lost may be another run's by now.
        held = [directory for directory in self.all if directory.is_held(self._me.run_id)]
        for directory in self.all:
            if directory not in held:
                directory.leave_remains()
        for directory in reversed(held):
            if manifest is None:
                directory.leave_no_trace()
            else:
                write_atomically(directory.room / MANIFEST, manifest)

    def _show_no_more(self) -> None:
        # A process that clears or moves a directory must be alone in it.
        with self._show_lock:
            self._is_shown = False

    def close(self) -> None:
        """Release the directories to others."""
        for journal in self._journals.values():
            journal.close()
        for directory in self.all:
            directory.close()


class _EarlierRuns:
    """The finished runs in the directories of a run: when they were taken, and now.

    A look reads each manifest. There is one at the start and one before the publication.
    """

    def __init__(self, directories: Sequence[Path], read_index: ReadIndex) -> None:
        """Look at the directories.

        Raises:
            OutputFailed: A manifest is damaged, or its run has files in other directories too.
        """
        self._directories = tuple(directories)
        self._read_index = read_index
        self.files: list[set[str]] = []
        """For each directory the names of the files of finished runs in it."""
        self._finished: list[Index | None] = []
        self._look()
        self._before = [each and each.run_id for each in self._finished], self.files

    def replaced(self) -> list[set[str]]:
        """Return for each directory the names of earlier runs' files, manifests included."""
        return [
            names if index is None else names | {MANIFEST}
            for index, names in zip(self._finished, self.files, strict=True)
        ]

    def check_unchanged(self, staged: Sequence[Path]) -> None:
        """Look again; check that no run was published: the user did not agree to replace it.

        Args:
            staged: Where the files of the new run are, for the error.

        Raises:
            OutputFailed: A run was published, or as at the start.
        """
        before, names = self._before
        self._look()
        for number, (directory, index) in enumerate(
            zip(self._directories, self._finished, strict=True)
        ):
            run = index.run_id if index is not None else ""
            if (run and run != before[number]) or self.files[number] - names[number]:
                raise OutputFailed(
                    f"another run ({run}) was published into {directory} while this run was "
                    "writing, so nothing is published",
                    "move the other run to another directory, then unload again; the files of "
                    f"this run are in {staged[number]}",
                )

    def _look(self) -> None:
        self._finished = [_finished(each, self._read_index) for each in self._directories]
        self.files = [set() for _ in self._directories]
        if not any(self._finished):
            return
        real = [os.path.realpath(directory) for directory in self._directories]
        for home, index in zip(self._directories, self._finished, strict=True):
            for number, path in enumerate(index.places if index is not None else ()):
                place = os.path.realpath(path)
                if place not in real:
                    raise OutputFailed(
                        f"the run in {home} also has files in {path}",
                        f"give both with --to to replace the run, or remove {home / MANIFEST}",
                    )
                assert index is not None
                # A manifest that another program has changed may not lead out of the directory.
                self.files[real.index(place)] |= {
                    name
                    for at, name in index.files
                    if at == number
                    and name == os.path.basename(name) != ""
                    and os.path.isfile(os.path.join(place, name))
                }


def _finished(directory: Path, read_index: ReadIndex) -> Index | None:
    path = directory / MANIFEST
    if not path.exists():
        return None
    try:
        data = read_regular(path)
    except OSError as error:
        raise OutputFailed(
            f"{path} cannot be read: {error.strerror or error}",
            "restore it, or unload again to another directory",
        ) from error
    return read_index(data, str(directory))
