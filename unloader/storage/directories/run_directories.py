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
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from unloader.errors import OutputFailed
from unloader.storage.directories.access import Access
from unloader.storage.directories.earlier_runs import EarlierRuns
from unloader.storage.directories.journal import SHORT_SECONDS, Journal, remove_unsynced
from unloader.storage.directories.leftovers import LOCK, Holder, strangers
from unloader.storage.directories.links import Above, foreign_link
from unloader.storage.directories.publication import (
    Placed,
    Publication,
    Share,
    read_publication,
    twin_name,
)
from unloader.storage.directories.publishing import carrying_out, check_real_room, take_back
from unloader.storage.directories.records import read_requests
from unloader.storage.directories.recovery import complete, is_under_way
from unloader.storage.directories.refusals import check_different
from unloader.storage.directories.run_directory import RunDirectory
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    RECORDS,
    RUN,
    RUN_RECORD,
    Claim,
    Move,
    Place,
    Staging,
    boot_id,
    host_name,
)
from writers.errors import WriteError
from writers.files.publish import NamedLater, check_moves, remove_staged
from writers.files.regular import open_regular
from writers.files.syncing import Steps, Wanted, alone, opened_for_sync
from writers.model import UncompletedUpload

_T = TypeVar("_T")
_TRIES = 3
_ABOVE = Above()
_FILE_AND_MANIFEST = 2


class RunDirectories:
    """One or more directories, taken by one run; use it as a context manager."""

    def __init__(self, claim: Claim) -> None:
        """Take all the directories or none; see `unloader.storage.storage_protocol.Storage.take`.

        Raises:
            OutputFailed: As there; or one is named twice, or lies in the `_run` of another.
        """
        paths = [Path(place) for place in claim.places]
        self._one_of_many = bool(claim.home)
        self._real_path = _ABOVE.real if self._one_of_many else os.path.realpath
        resolved = check_different(paths, self._real_path)
        self.places = tuple(Place(name=str(path), address=os.path.abspath(path)) for path in paths)
        """The directories, as they were written and absolute."""
        self.all: tuple[RunDirectory, ...]
        self.notices: tuple[str, ...] = ()
        self._publishing = False
        self._shared = claim.shared
        self._home = os.path.abspath(claim.home) if claim.home else ""
        self._journals: dict[str, Journal] = {}
        self._unsynced: dict[tuple[int, str], None] = {}
        self._is_shown, self._show_lock = True, threading.Lock()
        self._run_id = claim.run_id or os.urandom(6).hex()
        self._access = Access.of(claim.mode, claim.owner_group)
        with self._take(paths) as undo:
            if not claim.overwrite:
                for directory in self.all:
                    _on(directory, partial(directory.check_free, shared=claim.shared))
            # What cannot be replaced in the end had better be known before the work.
            self._earlier = EarlierRuns(self.all, claim.read_index)
            self._me = holder = self._holder(resolved)
            if claim.resumed:
                for directory in self.all:
                    _on(directory, partial(directory.go_on, holder, claim.is_record_of_it))
            else:
                self._begin(holder, (RUN_RECORD,) if claim.keeps_record else ())
            self.notices += tuple(
                f"kept {path}: no run wrote it"
                for directory in self.all
                if not directory.is_new
                for path in strangers(directory.room)
            )
            undo.pop_all()

    def _begin(self, holder: Holder, kept: Collection[str]) -> None:
        durable, flat = not self._one_of_many, self._one_of_many and len(self.all) == 1
        left = [
            _on(directory, partial(directory.begin, holder, durable, kept=kept, flat=flat))
            for directory in self.all
        ]
        self.notices += tuple(f"removed {each.text()}" for each in left if not each.is_empty)

    @property
    def first(self) -> RunDirectory:
        """The directory of the records and the manifest."""
        return self.all[0]

    def check_names(self, finals: Iterable[tuple[int, str]]) -> None:
        """Check that under none of these names lies a file that is not an earlier run's."""
        earlier = self._earlier.files
        for number, name in finals:
            path = f"{self.all[number].path}/{name}"
            if name not in earlier[number] and os.path.lexists(path):
                raise OutputFailed(
                    f"{path} already exists, and no earlier run wrote it",
                    "move it away, or choose another --to or --file-name",
                )

    def staging(self, place: int) -> Staging:
        """Return a directory on the file system that the files stay on."""
        staged = str(self.all[place].staged)
        return Staging(label=staged, directory=staged)

    def marks(self) -> tuple[str, ...]:
        """Return the locks, which tell whose the directories are."""
        return tuple(os.path.abspath(each.room / LOCK) for each in self.all)

    def check(self) -> None:
        """Do nothing: workers find out themselves."""

    def open_staged(self, place: int, name: str) -> IO[bytes]:
        """Make a file in the staging directory."""
        return open(self.staged_file(place, name), "xb")

    def staged_file(self, place: int, name: str) -> Path:
        """Return the path of a staged file."""
        return self.all[place].staged / name

    def keep(self, name: str, data: bytes) -> None:
        """Write a record into the first directory's `_run`, synced."""
        self.first.write_record(_known(name), data)
        if name in self._journals:
            # It has the file that was there before.
            self._journals.pop(name).close()

    def recorded(self, name: str) -> bytes:
        """Return a record from the first directory's `_run`."""
        read = partial(self.first.read_record, _known(name))
        return _on(self.first, read, "read")

    def sync_later(self, files: Iterable[tuple[int, str]]) -> None:
        """Keep them in mind, and have the journal sync them in front of its next line."""
        new = dict.fromkeys(files)
        self._unsynced |= new
        paths = [self.staged_file(place, name) for place, name in new]
        self._journal(JOURNAL).sync_before(paths)

    def append(self, name: str, line: bytes) -> None:
        """Append to a record in the first directory's `_run`; see `journal`."""
        _on(self.first, partial(self._journal(name).append, line), "write the journal in")

    def _journal(self, name: str) -> Journal:
        if name not in self._journals:
            path, staged = self.first.room / _known(name), self._apart()
            patience = SHORT_SECONDS if self.first.staged == self.first.room else 0.0
            make = partial(Journal, path, staged, self.all, patience_seconds=patience)
            self._journals[name] = _on(self.first, make, "write the journal in")
        return self._journals[name]

    def compare_upload(self, place: int, upload: UncompletedUpload) -> None:
        """Refuse: nothing is uploaded here."""
        raise WriteError(f"{upload.name} is not in an object store.", "unload it again.")

    def discard_others(
        self, kept: Collection[tuple[int, str]], uploads: Collection[str] = ()
    ) -> None:
        """Remove all staged files but these."""
        for number, directory in enumerate(self.all):
            names = {name for place, name in kept if place == number}
            _on(directory, partial(directory.remove_staged, names), "clear")

    def show(self, data: bytes) -> None:
        """Replace the record of how far the run is, in the first directory's `_run`, unsynced."""
        with self._show_lock:
            if not self._is_shown:
                return
            try:
                self.first.replace_status(data)
            except FileNotFoundError:
                # While it is published it goes elsewhere, and nobody has looked at it before.
                if not self._publishing:
                    raise

    def stop_asked(self) -> bool:
        """Return whether a file in the first directory's `_run` asks for the end."""
        return read_requests(self.first.room, self._me).stop

    def wish(self) -> bytes:
        """Return the other settings that the file asks for."""
        return read_requests(self.first.room, self._me).change.encode()

    def discard(self, *stems: str) -> None:
        """Remove whatever attempts with these stems have staged."""
        for directory in self.all:
            remove_staged(directory.staged, stems)

    def commit(
        self,
        moves: Sequence[Move],
        manifest: bytes,
        then: Callable[[], None] = lambda: None,
    ) -> tuple[str, ...]:
        """Publish: give every staged file its final name, the manifest last; see `publishing`."""
        return alone(self.committing(moves, manifest, then))

    def committing(
        self,
        moves: Sequence[Move],
        manifest: bytes,
        then: Callable[[], None] = lambda: None,
    ) -> Steps[tuple[str, ...]]:
        """Do the same in steps."""
        self._check_held()
        self._earlier.check_unchanged()
        self._check_moves(moves)
        for journal in self._journals.values():
            # From here on the publication is to tell more.
            _on(self.first, journal.rest, "write the journal in")
        for move in moves if not self._access.is_usual else ():
            self._access.give(self.staged_file(move.place, move.staged))
        with ExitStack() as opened:
            told = self._told(moves, manifest, opened)
            publication = self._publication(moves)
            for share in publication.shares:
                # That they are the run's is known.
                check_real_room(publication, share.room)
            self._publishing = True
            waiting = [then]

            def clearing() -> None:
                while waiting:
                    waiting.pop()()
                self._show_no_more()

            try:
                began = time.monotonic()
                yield from self._on_record(publication, told, moves)
                for directory in self.all:
                    directory.is_durable(began)
                # Until then machines that the lock does not reach see that it goes on.
                messages = yield from carrying_out(publication, clearing)
                self._check_out(manifest)
                return messages
            except BaseException as error:
                self._take_back(publication, error)
                if isinstance(error, OSError):
                    raise self.first.refused("publish in", error) from error
                raise

    def _on_record(
        self, publication: Publication, told: Sequence[Wanted], moves: Sequence[Move]
    ) -> Steps[None]:
        """Put the publication on record, once all that it tells of is on the disk."""
        try:
            yield told
        except (OSError, WriteError):
            remove_unsynced(
                self.staged_file(move.place, move.staged)
                for move in moves
                # Whether the disk has them is not known.
                if (move.place, move.staged) in self._unsynced
            )
            raise
        yield from publication.writing()

    def _apart(self) -> list[Path]:
        """Return the directories of staged files that are not a `_run` itself."""
        return [each.staged for each in self.all if each.staged != each.room]

    def _check_moves(self, moves: Sequence[Move]) -> None:
        earlier = self._earlier.files
        for number, directory in enumerate(self.all):
            ours = [(move.staged, move.final) for move in moves if move.place == number]
            check_moves(directory.staged, ours, directory.path, earlier[number])

    def _told(
        self, moves: Sequence[Move], manifest: bytes, opened: ExitStack
    ) -> tuple[Wanted, ...]:
        """Return all that is to be on the disk before it is on record that it is published.

        What the record tells of must be found again, by its name as well as its bytes. The manifest
        has its name in `_run` at once: it counts for nothing before there is a record.
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

    def abandon(self, manifest: bytes | None) -> None:
        """Keep what is staged with a partial manifest, or leave no trace."""
        if self._publishing:
            # What is on record is to be completed, and needs the manifest that is there.
            return
        self._show_no_more()
        # A directory that was lost may be another run's by now.
        held = [directory for directory in self.all if directory.is_held(self._run_id)]
        for directory in self.all:
            if directory not in held:
                directory.leave_remains()
        if manifest is not None:
            for directory in held:
                directory.write_record(MANIFEST, manifest)
            return
        for directory in reversed(held):
            directory.leave_no_trace()

    def close(self) -> None:
        """Release the directories to others."""
        for journal in self._journals.values():
            journal.close()
        for directory in self.all:
            directory.close()

    def __enter__(self) -> RunDirectories:
        """Return the directories themselves."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close them."""
        self.close()

    def _take(self, paths: Sequence[Path]) -> ExitStack:
        """Take all directories once nothing is being published into them; return how to undo it."""
        foreign = _ABOVE.foreign_link if self._one_of_many else foreign_link
        for _ in range(_TRIES):
            for path in () if self._one_of_many else paths:
                self.notices += tuple(text for run in complete(path) for text in run.messages)
            with ExitStack() as undo:
                self.all = ()
                for path in paths:
                    directory = RunDirectory(path, self._access, foreign=foreign)
                    undo.callback(directory.close)
                    undo.callback(directory.give_back)
                    self.all = (*self.all, directory)
                # Another run may have begun to publish, and died, before the locks were ours.
                if not any(self._is_under_way(directory) for directory in self.all):
                    return undo.pop_all()
        raise OutputFailed(
            f"another run is being published into {' or '.join(str(path) for path in paths)}",
            "wait until it ends, then start again",
        )

    def _is_under_way(self, directory: RunDirectory) -> bool:
        # A `_run` that was not there before us holds no record, and nothing was beside it.
        if self._one_of_many and directory.is_new:
            return False
        # To look beside the directories of many tables is to list as many names for each.
        return is_under_way(directory.path, beside=not self._one_of_many)

    def _check_held(self) -> None:
        for directory in self.all:
            if not directory.is_held(self._run_id):
                raise OutputFailed(
                    f"{directory.room / LOCK} was removed, replaced or made unreadable while the "
                    "run was writing, so nothing is published",
                    "find out which program did this, and unload again; the files of this run "
                    f"are in {directory.staged}, if that directory still exists",
                )

    def _check_out(self, manifest: bytes) -> None:
        """Check that what a reader finds now is this run."""
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

    def _publication(self, moves: Sequence[Move]) -> Publication:
        shares, replaced = [], self._earlier.replaced()
        for number, directory in enumerate(self.all):
            here = Path(self._real_path(directory.path))
            files = [
                Placed(
                    directory.source(move.staged),
                    move.final,
                    _size(f"{directory.staged}/{move.staged}"),
                )
                for move in moves
                if move.place == number
            ]
            if directory is self.first:
                files.append(Placed(MANIFEST, MANIFEST, _size(f"{directory.room}/{MANIFEST}")))
            shares.append(
                Share(
                    path=str(here),
                    twin=""
                    if self._goes_in_singly(directory, files)
                    else twin_name(here, self._run_id),
                    files=tuple(files),
                    replaced=tuple(sorted(replaced[number])),
                )
            )
        owners = frozenset().union(*(directory.owners for directory in self.all))
        return Publication(run_id=self._run_id, shares=tuple(shares), owners=owners)

    def _goes_in_singly(self, directory: RunDirectory, files: Sequence[Placed]) -> bool:
        """Tell whether files go into the directory one by one, and it is not exchanged as a whole.

        What others have in it must not move. And where a run has many directories, each made for
        one file and the manifest behind it, there is nothing that could be seen by half: this takes
        fewer steps than a second directory.
        """
        few = self._one_of_many and directory.is_new and len(files) <= _FILE_AND_MANIFEST
        return self._shared or few

    def _take_back(self, publication: Publication, error: BaseException) -> None:
        """Undo what was begun.

        Raises:
            OutputFailed: It cannot be undone; the record stays, so that it can be finished.
        """
        try:
            # The record tells which directories got their files one by one after all.
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

    def _show_no_more(self) -> None:
        # Whoever clears or moves a directory must be alone in it.
        with self._show_lock:
            self._is_shown = False

    def _holder(self, resolved: Sequence[str]) -> Holder:
        return Holder(
            run_id=self._run_id,
            pid=os.getpid(),
            directories=tuple(resolved),
            host=host_name(),
            boot_id=boot_id(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            home=self._home,
        )


def _on(directory: RunDirectory, act: Callable[[], _T], verb: str = "prepare") -> _T:
    try:
        return act()
    except OSError as error:
        raise directory.refused(verb, error) from error


def _known(name: str) -> str:
    # Whoever clears the directory removes only what it knows as a run's.
    if name not in RECORDS:
        raise ValueError(f"{name!r} is not the name of a record of a run")
    return name


def _size(path: str) -> int:
    return os.stat(path).st_size
