"""Local directories as a storage: the directories of one run, and the requests of other commands.

One directory is the usual case. Each of several has its own lock and its own staged files, so that
a file never crosses from one file system to another. The records and the manifest are in the first.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePath

from msgspec.structs import asdict

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_lock import (
    LOCK,
    holder_of,
    is_locked,
    is_of,
    lives_elsewhere,
    owners_for,
    read_holder,
    read_record,
    read_requests,
)
from unloader.storage.directories.directory_publishing import (
    STAGED,
    Placed,
    Publication,
    Share,
    carrying_out,
    check_real,
    leftover,
    read_publication,
    staged_files,
    strangers,
    take_back,
    twin_name,
)
from unloader.storage.directories.directory_recovery import clean, complete, is_under_way
from unloader.storage.directories.directory_staging import (
    SHORT_SECONDS,
    Access,
    Journal,
    RunDirectory,
    foreign,
    foreign_link,
    refused,
    remove_unsynced,
)
from unloader.storage.place_names import overlapping, two_are_one
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    REQUESTS,
    RUN,
    STATUS,
    Claim,
    Cleaning,
    Completed,
    EarlierRuns,
    Holder,
    Leftover,
    Move,
    Requests,
    RunStorage,
    Storage,
    WhoWasHere,
    held,
    not_free,
)
from writers.errors import WriteError
from writers.files.publish import (
    PART_SUFFIX,
    check_moves,
    remove,
    remove_staged,
    shown,
    write_atomically,
    write_new,
)
from writers.files.regular import open_regular, read_regular
from writers.files.syncing import Steps, Wanted, opened_for_sync
from writers.model import UncompletedUpload

_TRIES = 3
_FILE_AND_MANIFEST = 2


class RunDirectories(RunStorage):
    """One or more directories, taken by one run; see `RunStorage`."""

    def __init__(self, claim: Claim) -> None:
        """Lock all the directories, by the rules of `Storage.take`."""
        self._show_lock = threading.Lock()
        paths = [Path(place) for place in claim.places]
        self.places = tuple(map(str, paths))
        resolved = tuple(os.path.realpath(path) for path in paths)
        for path, real in zip(paths, resolved, strict=True):
            if RUN in real.split(os.sep):
                # The end of a run into the directory around it removes it, with finished files.
                raise OutputFailed(
                    f"{path} is inside a directory {RUN}, which is removed when the run ends",
                    "choose another directory",
                )
        if len(paths) > 1 and (pair := overlapping(list(map(PurePath, resolved)))) is not None:
            one, other = pair
            raise OutputFailed(
                two_are_one(
                    self.places[one], self.places[other], same=resolved[one] == resolved[other]
                ),
                "give separate directories",
            )
        self._one_of_many = bool(claim.home)
        self._shared = claim.shared
        self._journal: Journal | None = None
        self._unsynced: dict[tuple[int, str], None] = {}
        """Staged files that may not be synced, in their order."""
        self._access: Access | None = None
        """The permissions and the owner that are asked for; None leaves all to the system."""
        if claim.mode is not None or claim.owner_group.strip(":"):
            self._access = Access.of(claim.mode, claim.owner_group)
        self._me = Holder.here(
            claim.run_id or os.urandom(6).hex(),
            resolved,
            home=os.path.abspath(claim.home) if claim.home else "",
        )
        self.all, undo = self._take(paths)
        self.first = self.all[0]
        """The directory of the records and the manifest."""
        with undo:
            for directory in () if claim.overwrite else self.all:
                with directory.refused("prepare"):
                    names = os.listdir(directory.path)
                if error := not_free(str(directory.path), names, shared=claim.shared):
                    raise error
            # A run that cannot be replaced is refused before the work.
            self._earlier = EarlierRuns(LocalDirectories(), claim.places, claim.read_index)
            for directory in self.all:
                with directory.refused("prepare"):
                    left = directory.begin(self._me, claim)
                    if left is not None and not left.is_empty:
                        self.notices += (f"removed {left.text()}",)
            self.marks = tuple(os.path.abspath(each.room / LOCK) for each in self.all)
            self._apart = [each.staged for each in self.all if each.staged != each.room]
            """The directories of staged files, except a `_run` with staged files."""
            self.notices += tuple(
                f"kept {path}: no run wrote it"
                for directory in self.all
                if not directory.is_new
                for path in strangers(directory.room)
            )
            undo.pop_all()

    def _take(self, paths: Sequence[Path]) -> tuple[tuple[RunDirectory, ...], ExitStack]:
        """Take all directories when nothing is being published into them; return the undo too."""
        for _ in range(_TRIES):
            # A new directory has no record and no twin.
            for path in () if self._one_of_many else filter(os.path.exists, paths):
                self.notices += tuple(text for run in complete(path) for text in run.messages)
            with ExitStack() as undo:
                taken: list[RunDirectory] = []
                for path in paths:
                    taken.append(RunDirectory(path, self._access))
                    undo.callback(taken[-1].close)
                    if taken[-1].made_room:
                        undo.callback(taken[-1].leave_no_trace)
                # Another run may have begun to publish, and died, before the locks were ours.
                if not any(is_under_way(each.path) for each in taken if not each.is_new):
                    return tuple(taken), undo.pop_all()
        raise OutputFailed(
            f"another run is being published into {' or '.join(self.places)}",
            "wait until it ends, then start again",
        )

    def _foreign(self, place: int) -> set[str]:
        directory = self.all[place]
        with directory.refused("read"):
            return set(os.listdir(directory.path)) - self._earlier.files[place]

    def staging(self, place: int) -> str:
        return str(self.all[place].staged)

    def check(self) -> None:
        """Do nothing: the workers notice a lost directory."""

    def staged_file(self, place: int, name: str) -> Path:
        return self.all[place].staged / name

    def keep(self, name: str, data: bytes) -> None:
        write_atomically(self.first.room / name, data)
        if name == JOURNAL and self._journal is not None:
            # It has the file that was there before.
            self._journal.close()
            self._journal = None

    def recorded(self, name: str) -> bytes:
        with self.first.refused("read"):
            return read_record(self.first.room, name)

    def sync_later(self, files: Iterable[tuple[int, str]]) -> None:
        new = dict.fromkeys(files)
        self._unsynced |= new
        paths = [self.staged_file(place, name) for place, name in new]
        self._opened_journal().sync_before(paths)

    def append(self, line: bytes) -> None:
        journal = self._opened_journal()
        with self.first.refused("write the journal in"):
            journal.append(line)

    def _opened_journal(self) -> Journal:
        if self._journal is None:
            with self.first.refused("write the journal in"):
                self._journal = Journal(
                    self.first.room / JOURNAL,
                    self._apart,
                    self.all,
                    patience_seconds=SHORT_SECONDS if self.first.staged == self.first.room else 0.0,
                )
        return self._journal

    def compare_upload(self, place: int, upload: UncompletedUpload) -> None:
        raise WriteError(f"{upload.name} is not in an object store.", "unload it again.")

    def discard_others(
        self, kept: Collection[tuple[int, str]], uploads: Collection[str] = ()
    ) -> None:
        stay = frozenset(kept)
        for number, directory in enumerate(self.all):
            with directory.refused("clear"):
                for entry in staged_files(directory.room):
                    if (number, entry.name) not in stay:
                        remove(entry.path)

    def _show(self, data: bytes) -> None:
        try:
            self.first.show(data)
        except FileNotFoundError:
            # A publication may move the `_run` before the first record.
            if not self._publishing:
                raise

    def requests(self) -> Requests:
        return read_requests(self.first.room, self._me)

    def discard(self, *stems: str) -> None:
        for directory in self.all:
            remove_staged(directory.staged, stems)

    def committing(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = lambda: None
    ) -> Steps[tuple[str, ...]]:
        for directory in self.all:
            if not directory.is_held(self._me.run_id):
                raise OutputFailed(
                    f"{directory.room / LOCK} was removed, replaced or made unreadable while the "
                    "run was writing, so nothing is published",
                    "find out which program did this, and unload again; the files of this run "
                    f"are in {directory.staged}, if that directory still exists",
                )
        self._earlier = self._earlier.unchanged()
        for number, directory in enumerate(self.all):
            ours = [(move.staged, move.final) for move in moves if move.place == number]
            check_moves(directory.staged, ours, directory.path, self._earlier.files[number])
        if self._journal is not None:
            # From here on the record of the publication replaces the journal's lines.
            with self.first.refused("write the journal in"):
                self._journal.rest()
        # It has its name in `_run` before the record exists, and means nothing until then.
        path = self.first.room / MANIFEST
        write_atomically(path, manifest, synced=False)
        for each in (path, *(self.staged_file(*move[:2]) for move in moves)):
            if self._access is not None:
                self._access.give_all(each)
        unsynced = [self.staged_file(*move[:2]) for move in moves if move[:2] in self._unsynced]
        with ExitStack() as opened:
            # After a power cut the files in the record must be found by their names, with their
            # bytes.
            wanted: list[Wanted] = [step for directory in self.all for step in directory.way()]
            wanted += [*self._apart, *(directory.room for directory in self.all)]
            wanted += [opened_for_sync(each, opened) for each in (*unsynced, path)]
            publication = self._publication(moves)
            check_real(publication)
            self._publishing = True

            def ending() -> None:
                then()
                # Until then machines that the lock does not reach see the status.
                self._show_no_more()

            try:
                try:
                    yield wanted
                except (OSError, WriteError):
                    # It is unknown whether the disk has them.
                    remove_unsynced(unsynced)
                    raise
                yield from publication.writing()
                for directory in self.all:
                    directory.is_durable = True
                messages = yield from carrying_out(publication, ending)
                final = self.first.path / MANIFEST
                if read_regular(final) != manifest:
                    raise OutputFailed(
                        f"after the publication, {final} is not the manifest of this run",
                        "find out which program changes files there, then unload again",
                    )
                return messages
            except BaseException as error:
                self._take_back(publication, error)
                with self.first.refused("publish in"):
                    raise

    def _publication(self, moves: Sequence[Move]) -> Publication:
        shares = []
        for number, directory in enumerate(self.all):
            room, here = directory.room, Path(os.path.realpath(directory.path))
            apart = "" if directory.staged == room else f"{STAGED}/"
            ours = (move for move in moves if move.place == number)
            sources = [(f"{apart}{move.staged}", move.final) for move in ours]
            if directory is self.first:
                sources.append((MANIFEST, MANIFEST))
            files = [
                Placed(each, final, os.stat(shown(room / each)).st_size) for each, final in sources
            ]
            # Files of others in a shared directory must not move. And a new directory of one of
            # many tables with one file and the manifest needs no twin: readers cannot see half of
            # it, and this takes fewer steps.
            few = self._one_of_many and directory.is_new and len(files) <= _FILE_AND_MANIFEST
            shares.append(
                Share(
                    path=str(here),
                    twin="" if self._shared or few else twin_name(here, self._me.run_id),
                    files=tuple(files),
                    replaced=tuple(sorted(self._earlier.replaced[number])),
                )
            )
        owners = frozenset().union(*(directory.owners for directory in self.all))
        return Publication(run_id=self._me.run_id, shares=tuple(shares), owners=owners)

    def _take_back(self, publication: Publication, error: BaseException) -> None:
        """Undo a publication after an error; OutputFailed if the record stays, to be completed."""
        try:
            # The record shows which directories got their files one by one after all.
            rooms = (publication.home.room, publication.home.beside / RUN)
            read = (read_publication(room, publication.owners) for room in rooms)
            take_back(next(filter(None, read), publication))
            self._publishing = False
        except OSError:
            raise OutputFailed(
                f"publishing in {self.first.path} was interrupted: {error}",
                "fix the cause, then complete the publication with: unloader verify "
                f"{self.first.path}",
            ) from error

    def _abandon(self, manifest: bytes | None) -> None:
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

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
        for directory in self.all:
            directory.close()


class LocalDirectories(Storage):
    """Directories of this machine, network file systems included; see `Storage`."""

    def refusal(self, place: str, *, overwrite: bool) -> OutputFailed | None:
        path = Path(place)
        if (link := foreign_link(path)) is not None:
            return foreign(link)
        try:
            there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
            if not there.is_dir():
                return refused("create", path, f"{there} is not a directory")
            if not os.access(there, os.W_OK | os.X_OK):
                verb = "create" if there != path else "prepare"
                return refused(verb, path, "Permission denied")
            if there != path:
                return None
            room = path / RUN
            if room.exists():
                if not is_of(room, owners_for(path)):
                    return foreign(room)
                if is_locked(room) or lives_elsewhere(room):
                    return held(place, read_holder(room))
            return None if overwrite else not_free(place, os.listdir(path))
        except OSError as error:
            return refused("prepare", path, error.strerror or str(error))

    def take(self, claim: Claim) -> RunDirectories:
        return RunDirectories(claim)

    def complete(self, *places: str) -> tuple[Completed, ...]:
        return complete(*map(Path, places))

    def look(self, place: str) -> tuple[list[str], list[str]]:
        with os.scandir(place) as entries:
            found = sorted(entries, key=lambda each: each.name)
        places = [each.name for each in found if each.is_dir(follow_symlinks=False)]
        # A link that leads to itself is not a file, and no error.
        files = (
            each
            for each in found
            if each.is_file(follow_symlinks=False)
            or (each.is_symlink() and os.path.isfile(each.path))
        )
        return places, [each.name for each in files]

    def read(self, place: str, name: str) -> bytes:
        # Devices and pipes are refused: they may have no end.
        return read_regular(Path(place, name))

    def put_new(self, place: str, name: str, data: bytes) -> None:
        write_new(Path(place, name), data)

    def size(self, place: str, name: str) -> int:
        return os.stat(Path(place, name)).st_size

    def file(self, place: str, name: str) -> Path:
        return Path(place, name)

    def disk(self, place: str) -> tuple[int, str] | None:
        directory = Path(place).absolute()
        try:
            while not directory.exists() and directory != directory.parent:
                directory = directory.parent
            status = os.stat(directory)
        except OSError:
            return None
        is_directory = stat.S_ISDIR(status.st_mode)
        return (status.st_dev, str(directory)) if is_directory else None

    def record(self, place: str, name: str) -> bytes:
        room, owners = Path(place) / RUN, owners_for(Path(place))
        if not (is_of(room, owners) and is_of(room / name, owners, stat.S_IFREG)):
            return b""
        return read_record(room, name)

    def ask(self, place: str, *, stop: bool = False, change: str = "") -> None:
        room, owners = Path(place) / RUN, owners_for(Path(place))
        holder = holder_of(room, owners)
        if holder.places[:1] and not (room / STATUS).exists():
            room = Path(holder.places[0]) / RUN
        if not is_of(room, owners) or not holder.process.strip():
            raise FileNotFoundError(errno.ENOENT, "the directory has no run", str(room))
        asked = read_requests(room, holder).with_more(holder.process, stop=stop, change=change)
        staged = room / f"{REQUESTS}{PART_SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        # Another user's run must be able to read it.
        with open(open_regular(staged, flags, 0o644), "wb") as file:
            file.write(asked)
        os.replace(staged, room / REQUESTS)

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        directory = Path(place)
        room, owners = directory / RUN, owners_for(directory)
        if not is_of(room, owners):
            return None
        holder = holder_of(room, owners)
        uncounted = Leftover(directory=str(directory), run_id=holder.run_id)
        return WhoWasHere(
            **asdict(holder),
            is_running=is_locked(room) or lives_elsewhere(room),
            left=leftover(directory) if counted else uncounted,
        )

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        return clean([Path(place) for place in places], dry_run=dry_run)
