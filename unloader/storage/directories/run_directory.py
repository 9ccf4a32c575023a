"""One directory of a destination: who may use it, what is staged, what has its final name.

DIR/_manifest.json        comes last; its presence means that the run is finished. Of several
                          directories only the first has one
DIR/<data files>          complete and synced, all of them or none
DIR/_run/                 of a run that goes on or has died; see `leftovers`
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import chain
from pathlib import Path

from unloader.errors import OutputFailed
from unloader.storage.directories.access import Access
from unloader.storage.directories.leftovers import (
    LOCK,
    STAGED,
    Holder,
    Locked,
    is_directory_of,
    is_removed,
    look,
    owners_for,
    read_holder,
    remove_bulk,
    remove_room,
    staged_files,
    take_lock,
    write_holder,
)
from unloader.storage.directories.links import foreign_link
from unloader.storage.directories.records import Status, read_record
from unloader.storage.directories.recovery import sweep, sweep_one_of_many
from unloader.storage.directories.refusals import (
    foreign_room,
    held,
    linked,
    not_free,
    refused,
)
from unloader.storage.storage_protocol import (
    MANIFEST,
    REQUESTS,
    RUN,
    RUN_RECORD,
    STATUS,
    Index,
    Leftover,
    ReadIndex,
)
from writers.files.publish import write_atomically
from writers.files.regular import read_regular
from writers.files.syncing import Wanted, sync_directory

_USUAL = Access()


class RunDirectory:
    """One directory, taken by one run until `close`."""

    def __init__(
        self,
        path: Path,
        access: Access = _USUAL,
        *,
        foreign: Callable[[Path], Path | None] = foreign_link,
    ) -> None:
        """Take the directory, creating it where needed; change nothing else in it.

        Args:
            path: The directory.
            access: Rights and owner of the directories that are made.
            foreign: See `foreign_link`.

        Raises:
            OutputFailed: It cannot be created or written, or another run is using it.
        """
        self.path = path
        self._access = access
        self.room = path / RUN
        self.staged = self.room / STAGED
        self._made_room = False
        self._status = Status(self.room)
        self._is_durable = False
        self._written = b""
        """What this run has written into the lock."""
        self._above: tuple[Path, ...] = ()
        """Directories above this one that are to be synced, as `way` has returned them."""
        self._lock_path = f"{self.room}/{LOCK}"
        if (link := foreign(path)) is not None:
            raise linked(link)
        self._created = self._create()
        self._made_at = time.monotonic()
        self._lock = self._take_lock()

    @property
    def is_new(self) -> bool:
        """Whether it was not there before it was taken."""
        return self.path in self._created

    def check_free(self, *, shared: bool = False) -> None:
        """Check that nothing but leftovers of runs that died is in the directory.

        Args:
            shared: Other runs may have directories in it.

        Raises:
            OutputFailed: Something is.
        """
        if (error := not_free(self.path, shared=shared)) is not None:
            raise error

    def begin(
        self,
        holder: Holder,
        durable: bool = True,
        *,
        kept: Collection[str] = (),
        flat: bool = False,
    ) -> Leftover:
        """Write down whose the directory is and make room for staged files.

        Args:
            holder: The run.
            kept: Records of the run that died here that stay.
            flat: If the directory is new, staged files go into the `_run` itself.
            durable: Have it on the disk at once; otherwise `make_durable` is called in time.

        Returns:
            What a run that died had left in it, which is removed.

        Raises:
            OSError: The file system refused.
        """
        if self.is_new and not durable:
            # Nothing lies in it; and whoever looks at many places has looked beside them, too.
            left = Leftover(directory=str(self.path), run_id="")
        else:
            left = look(self.path)
            remove_bulk(self.room, kept)
            (sweep if durable else sweep_one_of_many)(self.path)
        self._written = write_holder(self._lock, holder)
        if flat and self.is_new and self._access.is_usual:
            self.staged = self.room
        else:
            # A file that no run has written keeps the former one there.
            self._make_staged()
        if durable:
            self.make_durable()
        return left

    def make_durable(self) -> None:
        """Have on the disk whose the directory is, and the way to it; once.

        What a power cut leaves of the run is found by it: it comes before the first line of the
        journal that is synced, and before the record of the publication.

        Raises:
            OSError: The file system refused.
            WriteError: So it did.
        """
        if not self._is_durable:
            os.fsync(self._lock)
            # A power cut may not lose the way to the records.
            for folder in (self.room, self.path, *(made.parent for made in self._created)):
                if _is_readable(folder):
                    sync_directory(folder)
            self._is_durable = True

    def way(self) -> tuple[Wanted, ...]:
        """Return what `make_durable` would sync, but for the `_run`, which the caller syncs too.

        Once that is done the caller says so by `is_durable`.
        """
        if self._is_durable:
            return ()
        self._above = tuple(
            made.parent for made in self._created if not _is_synced(made.parent, self._made_at)
        )
        return (self._lock, *filter(_is_readable, (self.path, *self._above)))

    def is_durable(self, since: float) -> None:
        """Take note that the way is synced.

        Args:
            since: When that began, by the monotonic clock.
        """
        _synced.update((folder, since) for folder in self._above)
        self._above, self._is_durable = (), True

    def go_on(self, holder: Holder, is_of_it: Callable[[bytes], bool] | None = None) -> None:
        """Write down that this process goes on with the run that died here; keep what it has.

        Args:
            holder: The run.
            is_of_it: See `Claim.is_record_of_it`.

        Raises:
            OutputFailed: It is not here any more.
            OSError: The file system refused.
        """
        here = read_holder(self.room).run_id == holder.run_id
        if not here and not (is_of_it and is_of_it(self.read_record(RUN_RECORD))):
            raise OutputFailed(
                f"run {holder.run_id} has no files in {self.path} any more",
                "start the unload again, without resume",
            )
        self._written = write_holder(self._lock, holder)
        if self._access.is_usual and not os.path.lexists(self.staged):
            self.staged = self.room
        else:
            self._make_staged()
        self.make_durable()

    def finished(self, read_index: ReadIndex) -> Index | None:
        """Return what the manifest of the finished run here lists, None if there is none.

        Raises:
            OutputFailed: It is damaged.
        """
        if not os.path.exists(f"{self.path}/{MANIFEST}"):
            return None
        path = self.path / MANIFEST
        try:
            data = read_regular(path)
        except OSError as error:
            raise OutputFailed(
                f"{path} cannot be read: {error.strerror or error}",
                "restore it, or unload again to another directory",
            ) from error
        return read_index(data, str(self.path))

    def files_here(self, index: Index) -> set[str]:
        """Return the names of those files of a finished run that lie in this directory."""
        here = os.path.realpath(self.path)
        ours = {
            number
            for number, directory in enumerate(index.places)
            if os.path.realpath(directory) == here
        }
        return {name for place, name in index.files if place in ours and self._is_ours(name)}

    def write_record(self, name: str, data: bytes) -> None:
        """Write a file into `_run`, as a whole and synced.

        Raises:
            WriteError: It could not be written.
        """
        write_atomically(self.room / name, data)

    def read_record(self, name: str) -> bytes:
        """Return a file of `_run`; empty where there is none.

        Raises:
            OSError: It cannot be read.
        """
        return read_record(self.room, name)

    def source(self, name: str) -> str:
        """Return where a staged file is, as seen from `_run`."""
        return name if self.staged == self.room else f"{STAGED}/{name}"

    def remove_staged(self, kept: Collection[str]) -> None:
        """Remove staged files but those of these names.

        Raises:
            OSError: The file system refused.
        """
        for entry in staged_files(self.room):
            if entry.name not in kept:
                os.unlink(entry.path)

    def replace_status(self, data: bytes) -> None:
        """Replace the record of how far the run is; see `Status`.

        Raises:
            OSError: The file system refused.
        """
        self._status.replace(data)

    def is_held(self, run_id: str) -> bool:
        """Tell whether the directory is still this run's: its lock is the one that was taken."""
        try:
            if not os.path.samestat(os.fstat(self._lock), os.lstat(self._lock_path)):
                return False
            written = self._written if os.access(self._lock_path, os.R_OK) else b""
            if written and os.pread(self._lock, len(written), 0) == written:
                return True
            return read_holder(self.room).run_id == run_id
        except OSError:
            return False

    def give_back(self) -> None:
        """Leave the directory as if it had never been taken."""
        if self._made_room:
            self.leave_no_trace()

    def leave_no_trace(self) -> None:
        """Remove all of our own, and the directories that were not there before us."""
        remove_room(self.room)
        with suppress(OSError):
            for made in self._created:
                made.rmdir()

    def leave_remains(self) -> None:
        """Remove the status and the empty directories of a run whose records were removed.

        A removal leaves them where the run writes a file while it works.
        """
        if is_removed(self.room):
            with suppress(OSError):
                os.unlink(self.room / STATUS)
            for folder in (self.staged, self.room, *self._created):
                with suppress(OSError):
                    folder.rmdir()

    def close(self) -> None:
        """Release the directory to others."""
        self._status.close()
        os.close(self._lock)

    def refused(self, verb: str, error: OSError) -> OutputFailed:
        """Return the error for what the file system said."""
        return refused(verb, self.path, error.strerror or str(error))

    def _create(self) -> tuple[Path, ...]:
        """Create the directory; return what was not there before, innermost first."""
        try:
            missing: list[Path] = []
            for each in chain((self.path,), self.path.parents):
                if each.exists():
                    break
                missing.append(each)
            if any(each.name == ".." for each in missing):
                raise OutputFailed(
                    f"--to {self.path} has .. after a directory that does not exist",
                    f"leave the .. out: --to {os.path.normpath(self.path)}",
                )
            self._made_room = bool(missing) or not self.room.exists()
            for each in reversed(missing):
                each.mkdir(exist_ok=True)
            self.room.mkdir(exist_ok=True)
            if self._made_room:
                self._set_rights(missing)
        except OSError as error:
            raise self.refused("create", error) from error
        self.owners = owners_for(self.path)
        if self._made_room:
            # On a network file system that maps users it is not of the one that we are here.
            self.owners |= {os.lstat(self.room).st_uid}
        if not is_directory_of(self.room, self.owners):
            raise foreign_room(self.room)
        return tuple(missing)

    def _set_rights(self, made: list[Path]) -> None:
        """Set rights and owner of the directories that were made; without them none stays."""
        try:
            for directory in made:
                self._access.give(directory)
            self._access.close(self.room)
        except (OSError, OutputFailed):
            with suppress(OSError):
                for directory in (self.room, *made):
                    directory.rmdir()
            raise

    def _take_lock(self) -> int:
        try:
            lock = take_lock(self.room)
        except Locked:
            raise held(self.path) from None
        except FileNotFoundError:
            # The run that held it has just ended, and removed it.
            raise OutputFailed(
                f"another run was writing to {self.path} until now", "start again"
            ) from None
        except OSError as error:
            raise self.refused("prepare", error) from error
        try:
            if not self._made_room:
                # They were for the process before.
                (self.room / REQUESTS).unlink(missing_ok=True)
        except OSError as error:
            os.close(lock)
            raise self.refused("prepare", error) from error
        return lock

    def _make_staged(self) -> None:
        self.staged.mkdir(mode=self._access.staging_mode, exist_ok=True)
        if not is_directory_of(self.staged, self.owners):
            raise FileExistsError(
                errno.EEXIST, "its _run/staged belongs to another user", self.staged
            )
        self._access.check(self.staged)

    def _is_ours(self, name: str) -> bool:
        # Only files of this directory: a manifest that was tampered with may not reach out of it.
        return name == os.path.basename(name) != "" and (self.path / name).is_file()


_synced: dict[Path, float] = {}
"""When the latest sync of a directory began in this process, by the monotonic clock. The thousand
directories of a run over many tables are made in one, which is synced once behind them all."""


def _is_synced(folder: Path, since: float) -> bool:
    """Tell whether the names in a directory were synced after a moment."""
    return _synced.get(folder, -math.inf) > since


def _is_readable(folder: Path) -> bool:
    """Tell whether a directory can be synced: only publishing needs the right to read it."""
    return os.access(folder, os.R_OK)
