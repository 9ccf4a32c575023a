"""One directory of a run: the reasons to refuse it, its lock, its staged files and its records.

DIR/_manifest.json        comes last; its presence means that the run is finished. Of several
                          directories only the first has one
DIR/<data files>          complete and synced, all of them or none
DIR/_run/                 of a running or a dead run; see `directory_records`
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_access import Access, foreign_link
from unloader.storage.directories.directory_lock import (
    LOCK,
    Holder,
    is_of,
    owners_for,
    read_holder,
    read_record,
    replace_status,
    take_lock,
    write_holder,
)
from unloader.storage.directories.directory_records import (
    STAGED,
    is_removed,
    leftover,
    remove_bulk,
    remove_room,
)
from unloader.storage.directories.directory_recovery import sweep
from unloader.storage.storage_protocol import REQUESTS, RUN, RUN_RECORD, STATUS, Leftover
from writers.files.syncing import Wanted, sync_directory


def held(path: Path) -> OutputFailed:
    """Return the error for a directory that another run is writing to."""
    who = read_holder(path / RUN).text()
    return OutputFailed(
        f"another run is writing to {path}{who and f': {who}'}",
        f"look at that run with: unloader status {path}; or choose another --to",
    )


def linked(link: Path) -> OutputFailed:
    """Return the error for a symbolic link that may mislead a run."""
    return OutputFailed(
        f"{link} is a symbolic link of another user, in a directory that all users may write to",
        "find out which program created it and remove it, or choose another --to",
    )


def foreign_room(room: Path) -> OutputFailed:
    """Return the error for a `_run` that another user may change."""
    return OutputFailed(
        f"{room} is a symbolic link or belongs to another user",
        "find out which program created it and remove it, or choose another --to",
    )


def refused(verb: str, path: Path, why: str) -> OutputFailed:
    """Return the error for what the file system did not do with a directory."""
    return OutputFailed(
        f"cannot {verb} {path}: {why}",
        "check the path, its permissions and the free space, or choose another --to",
    )


class RunDirectory:
    """One directory, taken by one run until `close`; it is made where needed.

    Args:
        path: The directory.
        access: Permissions and owner of the directories that are made; None is the system's.

    Raises:
        OutputFailed: It cannot be made or written, or another run is using it.
    """

    def __init__(self, path: Path, access: Access | None) -> None:
        self.path = path
        self._access = access
        self.room = path / RUN
        self.staged = self.room / STAGED
        """The directory of staged files; the `_run` itself for one of many tables."""
        self._descriptor: int | None = None
        """Of the `_run`, which has another path after an exchange of directories."""
        self._is_durable = False
        self._written = b""
        """The bytes that this run has written into the lock."""
        self._above: tuple[Path, ...] = ()
        """Directories above this one that are to be synced, as `way` has returned them."""
        if (link := foreign_link(path)) is not None:
            raise linked(link)
        self._created = self._create()
        self.is_new = path in self._created
        """It did not exist before it was taken."""
        self._made_at = time.monotonic()
        with self.refused("prepare"):
            try:
                lock = take_lock(self.room)
            except FileNotFoundError:
                # The run that held it has just ended, and removed it.
                raise OutputFailed(
                    f"another run was writing to {path} until now", "start again"
                ) from None
            if lock is None:
                raise held(path)
            self._lock = lock
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
            raise refused(verb, self.path, error.strerror or str(error)) from error

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
                if self._made_room and self._access is not None:
                    for each in made:
                        self._access.give(each)
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
        if not is_of(self.room, self.owners):
            raise foreign_room(self.room)
        return tuple(made)

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
        """
        left = Leftover(directory=str(self.path), run_id="")
        if not self.is_new:
            left = leftover(self.path)
            remove_bulk(self.room, kept)
        # The caller has looked for the twins of a new directory of one of many tables.
        if durable or not self.is_new:
            sweep(self.path, one_of_many=not durable)
        self._written = write_holder(self._lock, holder)
        if flat and self.is_new and self._access is None:
            self.staged = self.room
        else:
            # A file that no run has written keeps the earlier one there.
            self._make_staged()
        if durable:
            self._make_durable()
        return left

    def resume(self, holder: Holder, is_record_of_it: Callable[[bytes], bool] | None) -> None:
        """Record this process in the lock, and keep the files of the dead run."""
        here = read_holder(self.room).run_id == holder.run_id
        record = b"" if here else read_record(self.room, RUN_RECORD)
        if not here and not (is_record_of_it and is_record_of_it(record)):
            raise OutputFailed(
                f"run {holder.run_id} has no files in {self.path} any more",
                "start the unload again, without resume",
            )
        self._written = write_holder(self._lock, holder)
        if self._access is None and not os.path.lexists(self.staged):
            self.staged = self.room
        else:
            self._make_staged()
        self._make_durable()

    def _make_staged(self) -> None:
        mode = 0o777 if self._access is None else self._access.staging_mode
        self.staged.mkdir(mode=mode, exist_ok=True)
        if not is_of(self.staged, self.owners):
            raise FileExistsError(
                errno.EEXIST, "its _run/staged belongs to another user", self.staged
            )
        if self._access is not None:
            self._access.check(self.staged)

    def _make_durable(self) -> None:
        """Sync the lock and the way to the directory.

        After a power cut the lock leads to the run. So it is synced before the first line of the
        journal and before the record of the publication.
        """
        os.fsync(self._lock)
        for folder in _readable(self.room, self.path, *(made.parent for made in self._created)):
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
        return (self._lock, *_readable(self.path, *self._above))

    def is_durable(self, since: float) -> None:
        """Remember that the way is synced, by a sync that began then, by the monotonic clock."""
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

    def show(self, data: bytes) -> None:
        """Replace the status record, wherever the `_run` is."""
        if self._descriptor is None:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.room, flags)
        replace_status(self._descriptor, data)

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
        if self._descriptor is not None:
            os.close(self._descriptor)
        os.close(self._lock)


_synced: dict[Path, float] = {}
"""When the latest sync of a directory began in this process, by the monotonic clock. The thousand
directories of a run over many tables are made in one, which is synced once after all of them."""


def _readable(*folders: Path) -> list[Path]:
    """Return the directories that can be synced: only publishing needs the right to read them."""
    return [folder for folder in folders if os.access(folder, os.R_OK)]
