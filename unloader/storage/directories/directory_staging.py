"""One directory of a run: the reasons to refuse it, its lock, staged files, records and journal.

DIR/_manifest.json        comes last; its presence means that the run is finished. Of several
                          directories only the first has one
DIR/<data files>          complete and synced, all of them or none
DIR/_run/                 of a running or a dead run; see `directory_publishing`

Permissions and owner are set before anything gets its final name, so no file with a final name ever
has others. Until then only this user can enter the directory of staged files.

A line of the journal is in the system's cache when `append` returns, so it survives any kill of the
process. A sync waits for the data that all workers write to the same file system, and no worker
should wait for that. So a thread syncs the lines about once a second.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.json import encode

from unloader.errors import ConfigError, OutputFailed
from unloader.storage.directories.directory_lock import (
    LOCK,
    is_of,
    owners_for,
    read_holder,
    read_record,
    replace_status,
    take_lock,
)
from unloader.storage.directories.directory_publishing import (
    STAGED,
    is_removed,
    leftover,
    remove_bulk,
    remove_room,
)
from unloader.storage.directories.directory_recovery import sweep
from unloader.storage.storage_protocol import (
    REQUESTS,
    RUN,
    RUN_RECORD,
    STATUS,
    Claim,
    Holder,
    Leftover,
    held,
    no_files,
)
from writers.errors import WriteError
from writers.files.regular import open_regular
from writers.files.syncing import SyncThreads, Wanted, opened_for_sync, sync

_PROBE = "rights.part"
_OWN_DIRECTORY = 0o700
"""The run must be able to fill the directories that it makes."""
_SYNC_SECONDS = 1.0
"""Between two syncs of the journal; a power cut costs the lines since the last one."""
SHORT_SECONDS = 5.0
"""The delay before the lines of a small table are synced (a guess). Such a table is usually read in
less time than its journal takes to sync, and published before the end of the delay."""


class Access(Struct, frozen=True, kw_only=True):
    """The requested permissions and owner of the files and directories of a run."""

    mode: int | None = None
    """Permissions of files; None leaves them to the umask."""
    user: int = -1
    """Number of the owner; -1 is this user."""
    group: int = -1
    """Number of the group; -1 leaves it to the system."""

    @classmethod
    def of(cls, mode: int | None, owner_group: str) -> Access:
        """Return the access for `--mode` and `--owner-group`; ConfigError for an unknown name."""
        user, _, group = owner_group.partition(":")
        return cls(mode=mode, user=_number("user", user), group=_number("group", group))

    def check(self, staged: Path) -> None:
        """Check on an empty file that permissions and owner can be set in a directory."""
        probe = staged / _PROBE
        try:
            os.close(open_regular(probe, os.O_WRONLY | os.O_CREAT, 0o600))
            try:
                self.give(probe)
                kept = stat.S_IMODE(probe.stat().st_mode)
            finally:
                probe.unlink()
        except OSError as error:
            raise OutputFailed(
                f"cannot test the permissions in {staged}: {error.strerror or error}",
                "check the path, its permissions and the free space, or choose another --to",
            ) from error
        if self.mode is not None and kept != self.mode:
            raise OutputFailed(
                f"the file system of {staged} does not keep --mode {self.mode:03o}: it sets "
                f"{kept:03o}",
                "leave --mode out, or choose another --to",
            )

    def give_all(self, path: Path) -> None:
        """Set permissions and owner of a file, or of a folder and everything in it."""
        for folder, folders, names in os.walk(path, topdown=False) if path.is_dir() else ():
            for name in (*folders, *names):
                self.give(Path(folder, name))
        self.give(path)

    def give(self, path: Path) -> None:
        """Set permissions and owner of a file or a directory, synced."""
        try:
            is_directory = path.is_dir()
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            descriptor = os.open(path, flags) if is_directory else open_regular(path)
            try:
                # The owner first: giving a file away takes some of its permissions.
                if (self.user, self.group) != (-1, -1):
                    os.fchown(descriptor, self.user, self.group)
                if self.mode is not None:
                    os.fchmod(descriptor, _of_directory(self.mode) if is_directory else self.mode)
                # After a power cut the name would lead to a file with the old permissions.
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OutputFailed(
                f"cannot set the permissions or the owner of {path}: {error.strerror or error}",
                "only root can give files to another user; other users can give files only to "
                "their own groups (id -Gn); change --owner-group or --mode, or choose another "
                "--to",
            ) from error


def _of_directory(mode: int) -> int:
    """Return the permissions of a directory: users who may read its files may enter and list it."""
    return _OWN_DIRECTORY | mode | (mode & 0o444) >> 2


def _number(kind: str, name: str) -> int:
    """Return the number of a user or a group; -1 for an empty name."""
    try:
        if not name or name.isdecimal():
            return int(name or -1)
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        shown = "passwd" if kind == "user" else "group"
        raise ConfigError(
            f"this machine does not have the {kind} in --owner-group",
            f"give a name that `getent {shown}` shows, or the {kind}'s number",
        ) from None


def foreign_link(path: Path) -> Path | None:
    """Return a symbolic link on the way to a directory that any user could have made; else None.

    In a directory that all users may write to, such as /tmp, another user can make a link with the
    name of an expected directory, and so choose where our files go. Links of this user or of the
    directory's owner are safe. Linux refuses the same links where `fs.protected_symlinks` is on.
    """
    absolute = os.path.abspath(path)
    ends = [at for at, letter in enumerate(absolute) if letter == "/" and at]
    for end in (*ends, len(absolute)):
        each = absolute[:end]
        try:
            link = os.lstat(each)
            if not stat.S_ISLNK(link.st_mode):
                continue
            around = os.stat(os.path.dirname(each))
        except OSError:
            # It does not exist or cannot be seen. The caller that makes it reports that.
            return None
        shared = around.st_mode & stat.S_IWOTH and around.st_mode & stat.S_ISVTX
        if shared and link.st_uid not in (os.geteuid(), around.st_uid):
            return Path(each)
    return None


def foreign(path: Path) -> OutputFailed:
    """Return the error for a path that another user may have made to mislead a run."""
    return OutputFailed(
        f"{path} is a symbolic link or belongs to another user",
        "find out which program created it and remove it, or choose another --to",
    )


def refused(verb: str, path: Path, why: str) -> OutputFailed:
    """Return the error for a refusal of the file system."""
    return OutputFailed(
        f"cannot {verb} {path}: {why}",
        "check the path, its permissions and the free space, or choose another --to",
    )


class RunDirectory:
    """One directory, taken by one run until `close`; it is made where needed, with `access`.

    Raises OutputFailed if it cannot be made or written, or another run is using it.
    """

    def __init__(self, path: Path, access: Access | None) -> None:
        self.path = path
        self._access = access
        self.room = path / RUN
        self.staged = self.room / STAGED
        """The directory of staged files; the `_run` itself for one of many tables."""
        self._descriptor: int | None = None
        """Of the `_run`, which has another path after an exchange of directories."""
        self.is_durable = False
        """The lock and the way to the directory are synced."""
        self._written = b""
        """The bytes that this run has written into the lock."""
        if (link := foreign_link(path)) is not None:
            raise foreign(link)
        made: list[Path] = []
        with self.refused("create"):
            for each in (path, *path.parents):
                if each.exists():
                    break
                made.append(each)
            if any(each.name == ".." for each in made):
                raise OutputFailed(
                    f"--to {path} has .. after a directory that does not exist",
                    f"leave the .. out: --to {os.path.normpath(path)}",
                )
            self.made_room = bool(made) or not self.room.exists()
            for each in reversed(made):
                each.mkdir(exist_ok=True)
            self.room.mkdir(exist_ok=True)
            try:
                if self.made_room and access is not None:
                    for each in made:
                        access.give(each)
                    if access.mode is not None:
                        # The `_run` stays this user's, so that `clean` recognises it.
                        os.chmod(self.room, _of_directory(access.mode))
            except (OSError, OutputFailed):
                with suppress(OSError):
                    for each in (self.room, *made):
                        each.rmdir()
                raise
        self.owners = owners_for(path)
        if self.made_room:
            # A network file system that maps users shows another owner than this user.
            self.owners |= {os.lstat(self.room).st_uid}
        if not is_of(self.room, self.owners):
            raise foreign(self.room)
        self._created = tuple(made)
        """The directories that were made, innermost first."""
        self.is_new = path in self._created
        """It did not exist before it was taken."""
        with self.refused("prepare"), ExitStack() as undo:
            try:
                lock = take_lock(self.room)
            except FileNotFoundError:
                # The run that held it has just ended, and removed it.
                raise OutputFailed(
                    f"another run was writing to {path} until now", "start again"
                ) from None
            if lock is None:
                raise held(str(path), read_holder(self.room))
            self._lock = lock
            undo.callback(os.close, lock)
            if not self.made_room:
                # They were requests to an earlier process.
                (self.room / REQUESTS).unlink(missing_ok=True)
            undo.pop_all()

    @contextmanager
    def refused(self, verb: str) -> Iterator[None]:
        """Turn an OSError into OutputFailed, with the directory and advice."""
        try:
            yield
        except OSError as error:
            raise refused(verb, self.path, error.strerror or str(error)) from error

    def begin(self, holder: Holder, claim: Claim) -> Leftover | None:
        """Take the directory for a run; return the leftovers of a dead run, which are removed.

        A resumed run keeps its files. After a power cut the lock leads to the run: the lock and the
        way to the directory are synced before the first line of the journal and before the record
        of the publication. For one of many tables the caller does that.
        """
        left, flat = None, bool(claim.home) and len(claim.places) == 1
        if claim.resumed:
            here = read_holder(self.room).run_id == holder.run_id
            record = b"" if here else read_record(self.room, RUN_RECORD)
            if not here and not (claim.is_record_of_it and claim.is_record_of_it(record)):
                raise no_files(holder.run_id, str(self.path))
            flat = not os.path.lexists(self.staged)
        elif not self.is_new:
            left, flat = leftover(self.path), False
            remove_bulk(self.room, (RUN_RECORD,) if claim.keeps_record else ())
            sweep(self.path)
        try:
            self._written = encode(holder) + b"\n"
        except UnicodeEncodeError as error:
            raise OSError(errno.EILSEQ, "its name is not text in UTF-8") from error
        # In this order: a kill in between leaves a readable first line, then the old end.
        os.pwrite(self._lock, self._written, 0)
        os.ftruncate(self._lock, len(self._written))
        if flat and self._access is None:
            self.staged = self.room
        else:
            # A file that no run has written keeps the earlier directory there.
            has_mode = self._access is not None and self._access.mode is not None
            mode = _OWN_DIRECTORY if has_mode else 0o777
            self.staged.mkdir(mode=mode, exist_ok=True)
            if not is_of(self.staged, self.owners):
                raise FileExistsError(
                    errno.EEXIST, "its _run/staged belongs to another user", self.staged
                )
            if self._access is not None:
                self._access.check(self.staged)
        if claim.resumed or not claim.home:
            for each in (*self.way(), self.room):
                # Only publishing needs the right to read directories.
                if isinstance(each, int) or os.access(each, os.R_OK):
                    sync(each)
            self.is_durable = True
        return left

    def way(self) -> tuple[Wanted, ...]:
        """Return the lock and the directories that lead to it, if they are not durable yet.

        The caller syncs them together with the `_run`, and then sets `is_durable`.
        """
        if self.is_durable:
            return ()
        way = (self.path, *(made.parent for made in self._created))
        # Only publishing needs the right to read them.
        return (self._lock, *(folder for folder in way if os.access(folder, os.R_OK)))

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

    def leave_no_trace(self) -> None:
        """Remove the run's files, and the directories that it made."""
        remove_room(self.room)
        with suppress(OSError):
            for made in self._created:
                made.rmdir()

    def leave_remains(self) -> None:
        """Remove what a run has written after another process removed its records."""
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


class Journal:
    """One file that only grows; it is made if it does not exist.

    Directories with the staged files that its lines name (`folders`), and the ways to the
    directories of the run, are synced before the lines. A line waits `patience_seconds`, unless an
    earlier line is due.
    """

    def __init__(
        self,
        path: Path,
        folders: Sequence[Path] = (),
        directories: Sequence[RunDirectory] = (),
        *,
        patience_seconds: float = 0.0,
    ) -> None:
        self._descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._folders = (path.parent, *folders)
        self._directories = tuple(directories)
        self._patience = patience_seconds
        self._files: list[Path] = []
        """Not synced yet."""
        self._error: OSError | None = None
        self._lost: OSError | None = None
        self._syncing = threading.Lock()
        self._timer: threading.Timer | None = None
        """The thread that will sync the lines since the last sync; None without such lines."""
        self._next = 0.0
        """The earliest time of the next sync, monotonic."""

    def sync_before(self, files: Iterable[Path]) -> None:
        """Sync files before the lines that follow, except files that do not exist by then."""
        self._files += files

    def append(self, line: bytes) -> None:
        """Append a line, or none of it; OSError of the file system, or of the sync of an earlier
        line.
        """
        if self._error is not None:
            raise self._error
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                # After a short write the next one reports the reason.
                os.write(self._descriptor, line[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise
        # A thread that is still here after the line was written syncs this line too.
        if self._timer is None:
            wait = max(self._patience, self._next - time.monotonic())
            self._timer = threading.Timer(wait, self._sync)
            self._timer.name, self._timer.daemon = "journal", True
            try:
                self._timer.start()
            except RuntimeError:
                # The system refused a thread, because of memory or a limit, so this one syncs.
                self._timer = None
                self._sync_lines()
                if self._error is not None:
                    raise self._error from None

    def rest(self) -> None:
        """Sync nothing until the next line, because another record replaces the lines.

        An OSError means that files of the lines could not be synced, and were removed.
        """
        self._forget_timer()
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """Sync the rest, and close the file; never raises."""
        is_due = self._forget_timer()
        with suppress(OSError):
            # The file of a published run is removed, and not needed any more.
            if is_due and self._error is None and os.fstat(self._descriptor).st_nlink:
                self._sync_lines()
            os.close(self._descriptor)

    def _forget_timer(self) -> bool:
        """Wait for a sync under way; return whether another one was due."""
        with self._syncing:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()
        return timer is not None

    def _sync(self) -> None:
        with self._syncing:
            if self._timer is threading.current_thread():
                self._timer = None
                self._sync_lines()
                self._next = time.monotonic() + _SYNC_SECONDS

    def _sync_lines(self) -> None:
        """Sync the files that the lines name, the ways to them, then the lines; keep an error."""
        files, self._files = self._files, []
        try:
            try:
                with ExitStack() as opened, SyncThreads() as threads:
                    wanted = [each for directory in self._directories for each in directory.way()]
                    # The directories of a published run are removed.
                    wanted += [folder for folder in self._folders if os.path.lexists(folder)]
                    for path in files:
                        try:
                            wanted.append(opened_for_sync(path, opened))
                        except WriteError as error:
                            # It was published and removed.
                            if not isinstance(error.__cause__, FileNotFoundError):
                                raise
                    for failure in threads.sync(wanted).values():
                        raise failure
            except (OSError, WriteError) as error:
                if files:
                    remove_unsynced(files)
                    self._lost = _of_the_system(error)
                raise
            for directory in self._directories:
                directory.is_durable = True
            self._directories = ()
            os.fdatasync(self._descriptor)
        except (OSError, WriteError) as error:
            # A second sync would not report the lines that were lost in the first.
            self._error = _of_the_system(error)


def remove_unsynced(files: Iterable[Path]) -> None:
    """Remove staged files whose sync failed: the next one would succeed without their bytes."""
    for path in files:
        with suppress(OSError):
            path.unlink()


def _of_the_system(error: OSError | WriteError) -> OSError:
    """Return the system's error; the caller adds the name of the journal's directory."""
    if isinstance(error, OSError):
        return error
    return error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))
