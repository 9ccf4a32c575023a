"""One directory of a run: the reasons to refuse it, its lock, its staged files and its records.

DIR/_manifest.json        comes last; its presence means that the run is finished. Of several
                          directories only the first has one
DIR/<data files>          complete and synced, all of them or none
DIR/_run/                 of a running or a dead run; see `directory_leftovers`
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_access import Access, foreign_link
from unloader.storage.directories.directory_leftovers import (
    STAGED,
    is_removed,
    leftover,
    remove_bulk,
    remove_room,
)
from unloader.storage.directories.directory_lock import (
    LOCK,
    Holder,
    Locked,
    Status,
    is_directory_of,
    is_locked,
    lives_elsewhere,
    owners_for,
    read_holder,
    read_record,
    take_lock,
    write_holder,
)
from unloader.storage.directories.directory_recovery import sweep, sweep_one_of_many
from unloader.storage.place_names import overlapping, two_are_one
from unloader.storage.storage_protocol import (
    MANIFEST,
    REQUESTS,
    RUN,
    RUN_RECORD,
    STATUS,
    Leftover,
)
from writers.files.syncing import Wanted, sync_directory


def refusal(path: Path, *, overwrite: bool) -> OutputFailed | None:
    """Return why a run would be refused a directory; None if no reason is known.

    Args:
        path: The directory, which may be missing.
        overwrite: An earlier run in it may be replaced.
    """
    if (link := foreign_link(path)) is not None:
        return _linked(link)
    try:
        there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
        if not there.is_dir():
            return _refused("create", path, f"{there} is not a directory")
        if not os.access(there, os.W_OK | os.X_OK):
            return _refused("create" if there != path else "prepare", path, "Permission denied")
        if there != path:
            return None
        room = path / RUN
        if room.exists():
            if not is_directory_of(room, owners_for(path)):
                return _foreign_room(room)
            if is_locked(room) or lives_elsewhere(room):
                return _held(path)
        return None if overwrite else _not_free(path)
    except OSError as error:
        return _refused("prepare", path, error.strerror or str(error))


def missing(places: Iterable[str]) -> frozenset[str]:
    """Return the directories that do not exist and that this user seems able to make.

    The directories that they are in are looked at only once.
    """
    can_hold: dict[str, bool] = {}

    def can_be_made(place: str) -> bool:
        path = os.path.abspath(place)
        above, name = os.path.split(path)
        if name == RUN or not name:
            return False
        try:
            os.lstat(path)
        except FileNotFoundError:
            pass
        except OSError:
            return False  # The process that takes it reports the reason.
        else:
            return False
        if above not in can_hold:
            can_hold[above] = _can_hold(above)
        return can_hold[above]

    return frozenset(filter(can_be_made, places))


def _can_hold(above: str) -> bool:
    """Return whether this user may make a directory in another one, which need not exist."""
    if RUN in os.path.realpath(above).split(os.sep) or foreign_link(Path(above)) is not None:
        return False
    there = next(each for each in (Path(above), *Path(above).parents) if os.path.lexists(each))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _not_free(path: Path, *, shared: bool = False) -> OutputFailed | None:
    """Return the error for a directory with anything except leftovers of dead runs, else None."""
    others = sorted(entry.name for entry in path.iterdir() if entry.name != RUN)
    finished = MANIFEST in others
    if not others or (shared and not finished):
        return None
    what = "a finished run" if finished else f"{others[0]} and possibly other files"
    return OutputFailed(
        f"{path} is not empty: it holds {what}",
        "choose an empty directory with --to, or replace an earlier run with --overwrite",
    )


def _held(path: Path) -> OutputFailed:
    who = read_holder(path / RUN).text()
    return OutputFailed(
        f"another run is writing to {path}{who and f': {who}'}",
        f"look at that run with: unloader status {path}; or choose another --to",
    )


def _linked(link: Path) -> OutputFailed:
    return OutputFailed(
        f"{link} is a symbolic link of another user, in a directory that all users may write to",
        "find out which program created it and remove it, or choose another --to",
    )


def _foreign_room(room: Path) -> OutputFailed:
    return OutputFailed(
        f"{room} is a symbolic link or belongs to another user",
        "find out which program created it and remove it, or choose another --to",
    )


def _refused(verb: str, path: Path, why: str) -> OutputFailed:
    return OutputFailed(
        f"cannot {verb} {path}: {why}",
        "check the path, its permissions and the free space, or choose another --to",
    )


def check_different(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the directories without symbolic links; they are apart from each other.

    Raises:
        OutputFailed: Two are the same or nested, or one is in the `_run` of another run.
    """
    resolved = tuple(os.path.realpath(path) for path in paths)
    for path, real in zip(paths, resolved, strict=True):
        if RUN in real.split(os.sep):
            # The end of a run into the directory around it removes it, with finished files.
            raise OutputFailed(
                f"{path} is inside a directory {RUN}, which is removed when the run ends",
                "choose another directory",
            )
    pair = overlapping(list(map(PurePath, resolved))) if len(resolved) > 1 else None
    if pair is not None:
        first, second = pair
        same = resolved[first] == resolved[second]
        raise OutputFailed(
            two_are_one(str(paths[first]), str(paths[second]), same=same),
            "give separate directories",
        )
    return resolved


class RunDirectory:
    """One directory, taken by one run until `close`."""

    def __init__(self, path: Path, access: Access) -> None:
        """Take the directory, creating it where needed; change nothing else in it.

        Args:
            path: The directory.
            access: Permissions and owner of the directories that are made.

        Raises:
            OutputFailed: It cannot be created or written, or another run is using it.
        """
        self.path = path
        self._access = access
        self.room = path / RUN
        self.staged = self.room / STAGED
        """The directory of staged files; the `_run` itself for one of many tables."""
        self.status = Status(self.room)
        self._is_durable = False
        self._written = b""
        """The bytes that this run has written into the lock."""
        self._above: tuple[Path, ...] = ()
        """Directories above this one that are to be synced, as `way` has returned them."""
        if (link := foreign_link(path)) is not None:
            raise _linked(link)
        self._created = self._create()
        self._made_at = time.monotonic()
        with self.refused("prepare"):
            try:
                self._lock = take_lock(self.room)
            except Locked:
                raise _held(path) from None
            except FileNotFoundError:
                # The run that held it has just ended, and removed it.
                raise OutputFailed(
                    f"another run was writing to {path} until now", "start again"
                ) from None
            try:
                if not self._made_room:
                    # They were requests to an earlier process.
                    (self.room / REQUESTS).unlink(missing_ok=True)
            except OSError:
                os.close(self._lock)
                raise

    @contextmanager
    def refused(self, verb: str) -> Iterator[None]:
        """Turn an OSError into OutputFailed, with the directory and advice."""
        try:
            yield
        except OSError as error:
            raise _refused(verb, self.path, error.strerror or str(error)) from error

    def _create(self) -> tuple[Path, ...]:
        """Create the directory; return the new directories, innermost first."""
        made: list[Path] = []
        with self.refused("create"):
            for each in (self.path, *self.path.parents):
                if each.exists():
                    break
                made.append(each)
            if any(each.name == ".." for each in made):
                raise OutputFailed(
                    f"--to {self.path} has .. after a directory that does not exist",
                    f"leave the .. out: --to {os.path.normpath(self.path)}",
                )
            self._made_room = bool(made) or not self.room.exists()
            for each in reversed(made):
                each.mkdir(exist_ok=True)
            self.room.mkdir(exist_ok=True)
            try:
                for each in made if self._made_room else ():
                    self._access.give(each)
                if self._made_room:
                    self._access.close(self.room)
            except (OSError, OutputFailed):
                with suppress(OSError):
                    for each in (self.room, *made):
                        each.rmdir()
                raise
        self.owners = owners_for(self.path)
        if self._made_room:
            # A network file system that maps users shows another owner than this user.
            self.owners |= {os.lstat(self.room).st_uid}
        if not is_directory_of(self.room, self.owners):
            raise _foreign_room(self.room)
        return tuple(made)

    @property
    def is_new(self) -> bool:
        """Whether it did not exist before it was taken."""
        return self.path in self._created

    def check_free(self, *, shared: bool) -> None:
        """Check that the directory has nothing except leftovers of dead runs.

        Args:
            shared: Other runs may have directories in it.

        Raises:
            OutputFailed: It has other files, or cannot be read.
        """
        with self.refused("prepare"):
            if (error := _not_free(self.path, shared=shared)) is not None:
                raise error

    def begin(
        self, holder: Holder, *, durable: bool, flat: bool, kept: Collection[str]
    ) -> Leftover:
        """Record the run in the lock, and make the directory of staged files.

        Args:
            holder: The run.
            durable: Sync it now; otherwise the caller syncs `way` before the first record.
            flat: If the directory is new, staged files go into the `_run` itself.
            kept: Records of the dead run that stay.

        Returns:
            The leftovers of a dead run, which are removed.

        Raises:
            OSError: The file system refused.
        """
        if self.is_new and not durable:
            # It is empty, and the caller has looked for its twins.
            left = Leftover(directory=str(self.path), run_id="")
        else:
            left = leftover(self.path)
            remove_bulk(self.room, kept)
            (sweep if durable else sweep_one_of_many)(self.path)
        self._written = write_holder(self._lock, holder)
        if flat and self.is_new and self._access.is_usual:
            self.staged = self.room
        else:
            # A file that no run has written keeps the earlier one there.
            self._make_staged()
        if durable:
            self._make_durable()
        return left

    def resume(self, holder: Holder, is_of_it: Callable[[bytes], bool] | None) -> None:
        """Record this process in the lock, and keep the files of the dead run.

        Args:
            holder: The run.
            is_of_it: See `Claim.is_record_of_it`.

        Raises:
            OutputFailed: The run has no files here any more.
            OSError: The file system refused.
        """
        here = read_holder(self.room).run_id == holder.run_id
        if not here and not (is_of_it and is_of_it(read_record(self.room, RUN_RECORD))):
            raise OutputFailed(
                f"run {holder.run_id} has no files in {self.path} any more",
                "start the unload again, without resume",
            )
        self._written = write_holder(self._lock, holder)
        if self._access.is_usual and not os.path.lexists(self.staged):
            self.staged = self.room
        else:
            self._make_staged()
        self._make_durable()

    def _make_staged(self) -> None:
        self.staged.mkdir(mode=self._access.staging_mode, exist_ok=True)
        if not is_directory_of(self.staged, self.owners):
            raise FileExistsError(
                errno.EEXIST, "its _run/staged belongs to another user", self.staged
            )
        self._access.check(self.staged)

    def _make_durable(self) -> None:
        """Sync the lock and the way to the directory.

        After a power cut the lock leads to the run. So it is synced before the first line of the
        journal and before the record of the publication.
        """
        os.fsync(self._lock)
        for folder in (self.room, self.path, *(made.parent for made in self._created)):
            if _is_readable(folder):
                sync_directory(folder)
        self._is_durable = True

    def way(self) -> tuple[Wanted, ...]:
        """Return the lock and the directories that lead to it, if they are not synced yet.

        The caller syncs them together with the `_run`, and then calls `is_durable`.
        """
        if self._is_durable:
            return ()
        self._above = tuple(
            made.parent
            for made in self._created
            if _synced.get(made.parent, -math.inf) <= self._made_at
        )
        return (self._lock, *filter(_is_readable, (self.path, *self._above)))

    def is_durable(self, since: float) -> None:
        """Remember that the way is synced.

        Args:
            since: When the sync began, by the monotonic clock.
        """
        _synced.update((folder, since) for folder in self._above)
        self._above, self._is_durable = (), True

    def is_held(self, run_id: str) -> bool:
        """Return whether the directory is still this run's: its lock is the one that was taken."""
        try:
            path = f"{self.room}/{LOCK}"
            if not os.path.samestat(os.fstat(self._lock), os.lstat(path)):
                return False
            written = self._written if os.access(path, os.R_OK) else b""
            if written and os.pread(self._lock, len(written), 0) == written:
                return True
            return read_holder(self.room).run_id == run_id
        except OSError:
            return False

    def give_back(self) -> None:
        """Leave the directory as it was before it was taken."""
        if self._made_room:
            self.leave_no_trace()

    def leave_no_trace(self) -> None:
        """Remove the run's files, and the directories that it made."""
        remove_room(self.room)
        with suppress(OSError):
            for made in self._created:
                made.rmdir()

    def leave_remains(self) -> None:
        """Remove the status and the empty directories of a run whose records were removed.

        A removal by another process leaves them if the run writes a file meanwhile.
        """
        if is_removed(self.room):
            with suppress(OSError):
                os.unlink(self.room / STATUS)
            for folder in (self.staged, self.room, *self._created):
                with suppress(OSError):
                    folder.rmdir()

    def close(self) -> None:
        """Release the directory to others."""
        self.status.close()
        os.close(self._lock)


_synced: dict[Path, float] = {}
"""When the latest sync of a directory began in this process, by the monotonic clock. The thousand
directories of a run over many tables are made in one, which is synced once after all of them."""


def _is_readable(folder: Path) -> bool:
    """Return whether a directory can be synced: only publishing needs the right to read it."""
    return os.access(folder, os.R_OK)
