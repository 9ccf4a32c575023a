"""What lies in a directory's `_run`, and whose it is: of a run that goes on or of one that died.

DIR/_run/lock             held by the running process; tells which run it is
DIR/_run/run.json         what the run is to do, in the first directory
DIR/_run/journal.jsonl    one line a step of a work unit, in the first directory; last, and in each
                          directory, what goes where while publishing: see `publication`
DIR/_run/staged/          files of finished and running units
DIR/_run/_manifest.json   of a broken run; while publishing the manifest to come
DIR/_run/status.json      how far the run is, replaced every second, in the first directory
DIR/_run/requests.json    what other processes ask the run for, in the first directory
DIR/_run/replaced/        while publishing: files of the run that is being replaced

Tells whether the run of another machine lives, where a lock does not say so.

A lock of the file system decides on one machine, and over NFS with a lock service. Some network
file systems keep locks to themselves on each machine. Then the only sign of life is the record of
how far the run is, which the run replaces about once a second.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.json import Decoder, encode

from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    PUBLISHING_LINE,
    RECORDS,
    REQUESTS,
    RUN,
    RUN_RECORD,
    STAGED_LINE,
    STATUS,
    Leftover,
    boot_id,
    host_name,
)
from writers.files.regular import open_regular, read_regular
from writers.files.staging import PART_SUFFIX

STAGED = "staged"
LOCK = "lock"
REPLACED = "replaced"

BULK = (STAGED, REPLACED, RUN_RECORD, STATUS, REQUESTS, MANIFEST, JOURNAL)
"""What a run puts into its `_run` beside the lock; nothing else is removed. Of the two directories
among them only the run's own files are: staged ones by the end of their names, replaced ones by the
record of the publication. So the journal, which has that record, is removed last. Staged files may
be beside these, too."""

_PARTS = tuple(each + PART_SUFFIX for each in (*RECORDS, STATUS, REQUESTS, MANIFEST))
"""Records that are being written."""


class Holder(Struct, frozen=True, kw_only=True):
    """The run that a `_run` belongs to."""

    run_id: str = ""
    pid: int = 0
    directories: tuple[str, ...] = ()
    """All of the run's, absolute and without symbolic links."""
    host: str = ""
    """Name of the machine of its process."""
    boot_id: str = ""
    """Tells one start of that machine from another."""
    started: str = ""
    """When the process took the directory, ISO 8601 in UTC."""
    home: str = ""
    """The directory with the record of the run, if this is one of many tables."""

    @property
    def process(self) -> str:
        """What tells this process of the run from others: one that is resumed has several."""
        return " ".join((self.run_id, str(self.pid), self.boot_id, self.started))

    def text(self) -> str:
        """Return it in words, as far as it is known."""
        return ", ".join(
            f"{what} {value}"
            for what, value in (
                ("run", self.run_id),
                ("on", self.host),
                ("process", self.pid),
                ("since", self.started),
            )
            if value
        )


_HOLDER = Decoder(Holder)


def owners_for(*directories: Path) -> frozenset[int]:
    """Return the users whose records are believed in these directories.

    In a place that anyone can write into, like /tmp, anyone can put down what looks like a record.
    """
    users = {os.geteuid(), 0}
    for directory in directories:
        with suppress(FileNotFoundError, NotADirectoryError):
            users.add(os.stat(directory).st_uid)
    return frozenset(users)


def is_directory_of(path: Path, owners: Collection[int]) -> bool:
    """Tell whether a path leads to a directory of one of these users, not by a symbolic link."""
    return _is(stat.S_IFDIR, path, owners)


def is_file_of(path: Path, owners: Collection[int]) -> bool:
    """Tell whether a path leads to a file of one of these users, not by a symbolic link."""
    return _is(stat.S_IFREG, path, owners)


def _is(kind: int, path: Path, owners: Collection[int]) -> bool:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid in owners


_TRIES, _TRY_SECONDS = 4, 0.05


class Locked(Exception):
    """Another process holds the lock, or lives on a machine that the lock does not reach."""


def take_lock(room: Path, *, create: bool = True) -> int:
    """Lock a `_run`; return the descriptor, which holds the lock until it is closed.

    Args:
        room: The `_run`, which exists.
        create: Make the lock file where there is none.

    Raises:
        Locked: Another process holds it.
        FileNotFoundError: There is none, or it has just been removed by the run that held it.
        OSError: The file system refused.
    """
    path = f"{room}/{LOCK}"
    descriptor = open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)
    try:
        _lock(descriptor)
        # A lock on a file that has been removed or exchanged meanwhile keeps nobody out.
        locked = os.fstat(descriptor)
        if not os.path.samestat(locked, os.stat(path)):
            raise FileNotFoundError(path)
        # One that is empty was made here just now: nobody has written into it who he is.
        if locked.st_size and lives_elsewhere(room):
            raise Locked
    except BlockingIOError:
        os.close(descriptor)
        raise Locked from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int) -> None:
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        # Somebody may only be asking; see `is_locked`.
        time.sleep(_TRY_SECONDS)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(room: Path) -> bool:
    """Tell whether a process of this machine, or of one that the lock reaches, has a `_run`.

    Who may only read it can ask, too. A run that starts in this moment waits until it is over.
    """
    try:
        descriptor = open_regular(room / LOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


_found_dead: set[Holder] = set()
"""Of other machines, so that each is watched once."""


def lives_elsewhere(room: Path) -> bool:
    """Tell whether the run of a `_run` that nobody here has locked goes on on another machine.

    That is watched for seconds if another machine, or this one before it was started again, has
    written who it is. A process id tells nothing: another process may have it by now.
    """
    holder = read_holder(room)
    if holder in _found_dead or not is_elsewhere(holder.host, holder.boot_id):
        return False
    rooms = dict.fromkeys((room, *(Path(each) / RUN for each in holder.directories[:1])))
    if is_replaced([each / STATUS for each in rooms], holder.run_id):
        return True
    _found_dead.add(holder)
    return False


def holder_of(room: Path, owners: Collection[int]) -> Holder:
    """Return whose a `_run` is, where these users have made it; nobody's where others have.

    Raises:
        OSError: As for `read_holder`.
    """
    if is_directory_of(room, owners) and is_file_of(room / LOCK, owners):
        return read_holder(room)
    return Holder()


def read_holder(room: Path) -> Holder:
    """Return the run that a `_run` belongs to, as far as it is known.

    Raises:
        OSError: Its lock is there and cannot be read: whose it is must not be guessed.
    """
    try:
        line, _, _ = read_regular(room / LOCK).partition(b"\n")
        return _HOLDER.decode(line)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return Holder()


def write_holder(descriptor: int, holder: Holder) -> bytes:
    """Write into a lock file whose run it is; return what is in it. The caller syncs it: the way
    back after a power cut needs it.

    Raises:
        OSError: The file system refused.
    """
    try:
        data = encode(holder) + b"\n"
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, "its name is not text in UTF-8") from error
    # In this order: a kill in between leaves a line that can be read, and what is left of the last.
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))
    return data


def look(directory: Path) -> Leftover:
    """Return what a run has left in a directory's `_run`."""
    room = directory / RUN
    sizes = []
    for entry in staged_files(room):
        with suppress(OSError):
            sizes.append(entry.stat(follow_symlinks=False).st_size)
    return Leftover(
        directory=str(directory),
        run_id=read_holder(room).run_id,
        units=_finished_units(room),
        files=len(sizes),
        bytes=sum(sizes),
    )


def staged_files(room: Path) -> tuple[os.DirEntry[str], ...]:
    """Return the staged files of a `_run`, unfinished ones included."""
    apart = tuple(entry for entry in _entries(room / STAGED) if _is_staged(entry))
    return apart + tuple(entry for entry in _entries(room) if _is_staged_here(entry))


def strangers(room: Path) -> tuple[Path, ...]:
    """Return what lies in a `_run` and no run has put there; it is never removed."""
    known = {*BULK, *_PARTS, LOCK}
    here = _entries(room)
    found = [each for each in here if each.name not in known and not _is_staged_here(each)]
    names = {entry.name for entry in here}
    if STAGED in names:
        found += [entry for entry in _entries(room / STAGED) if not _is_staged(entry)]
    if REPLACED in names:
        replaced = _recorded(room)
        found += [entry for entry in _entries(room / REPLACED) if entry.name not in replaced]
    return tuple(sorted(Path(entry.path) for entry in found))


def remove_room(room: Path) -> None:
    """Remove a `_run`, but for what no run has put there; never raises.

    The record of the run goes last, so that a removal cut short is known as one.
    """
    remove_bulk(room)
    with suppress(OSError):
        os.unlink(f"{room}/{LOCK}")
    with suppress(OSError):
        os.rmdir(room)


def is_removed(room: Path) -> bool:
    """Tell whether another process has removed a `_run`, with all records of the run."""
    return not any(os.path.lexists(room / name) for name in (LOCK, RUN_RECORD, JOURNAL))


def remove_bulk(room: Path, kept: Collection[str] = ()) -> None:
    """Remove all of a `_run` except its lock and `kept`; never raises."""
    try:
        there = set(os.listdir(room))
    except OSError:
        there = {STAGED, REPLACED, *BULK, *_PARTS}
    if STAGED in there:
        _remove(room / STAGED, _is_staged)
    if REPLACED in there:
        replaced = _recorded(room)
        _remove(room / REPLACED, lambda entry: entry.name in replaced)
    if any(name.endswith(PART_SUFFIX) for name in there):
        for entry in filter(_is_staged_here, _entries(room)):
            with suppress(OSError):
                os.unlink(entry.path)
    for name in (*_PARTS, *BULK):
        if name in there and name not in kept:
            with suppress(OSError):
                os.unlink(f"{room}/{name}")


def _remove(folder: Path, is_ours: Callable[[os.DirEntry[str]], bool]) -> None:
    with suppress(OSError):
        # Most often it is empty by now.
        os.rmdir(folder)
        return
    for entry in _entries(folder):
        with suppress(OSError):
            if is_ours(entry):
                os.unlink(entry.path)
    with suppress(OSError):
        folder.rmdir()


def _entries(folder: Path) -> tuple[os.DirEntry[str], ...]:
    """Return what lies in a directory; nothing where it is none, or a symbolic link to one."""
    try:
        if folder.is_symlink():
            return ()
        with os.scandir(folder) as found:
            return tuple(found)
    except OSError:
        return ()


def _is_staged(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.name.endswith(PART_SUFFIX) and entry.is_file(follow_symlinks=False)
    return False


def _is_staged_here(entry: os.DirEntry[str]) -> bool:
    """Tell whether it is a staged file that lies in a `_run` itself, as of a table of many."""
    return entry.name not in _PARTS and _is_staged(entry)


class _Share(Struct, frozen=True, kw_only=True):
    replaced: tuple[str, ...]


class _Record(Struct, frozen=True, kw_only=True):
    """What any version has in the record of a publication."""

    shares: tuple[_Share, ...]


_RECORD = Decoder(_Record)


def _recorded(room: Path) -> frozenset[str]:
    """Return the names of the files that a publication replaces, by its record in a `_run`."""
    try:
        _, lines = publishing_lines(room)
        return frozenset(
            name
            for line in lines
            for share in _RECORD.decode(line).shares
            for name in share.replaced
        )
    except (OSError, ValueError, RecursionError):
        return frozenset()


def publishing_lines(room: Path) -> tuple[int, list[bytes]]:
    """Return the bytes of a journal before the record of a publication, and the record.

    That is one line, or several, of which the latest is first; none if no publication has begun.

    Raises:
        OSError: The journal cannot be read.
    """
    try:
        data = read_regular(room / JOURNAL)
    except (FileNotFoundError, NotADirectoryError):
        return 0, []
    end, lines = data.rfind(b"\n") + 1, []
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if not data.startswith(PUBLISHING_LINE, begin):
            break
        lines.append(data[begin:end])
        end = begin
    return end, lines


def _finished_units(room: Path) -> int:
    try:
        lines = read_regular(room / JOURNAL).splitlines(keepends=True)
        # A last line without an end is of a kill in mid-write.
        return sum(line.startswith(STAGED_LINE) and line.endswith(b"\n") for line in lines)
    except OSError:
        return 0


WATCH_SECONDS = 10.0
"""A run that has shown nothing for so long is dead. It shows itself about every second; a busy
machine or a slow server may delay that by seconds."""

_LOOK_SECONDS = 0.25


def is_elsewhere(host: str, boot: str) -> bool:
    """Tell whether what was written under these names was written under another kernel.

    Where nothing is known, as of an earlier version, the lock alone decides.
    """
    if boot and boot_id():
        return boot != boot_id()
    return bool(host) and host != host_name()


def is_replaced(records: Sequence[Path], run_id: str) -> bool:
    """Watch records of how far a run is; tell whether one of them is replaced meanwhile.

    Args:
        records: Where the run may keep it.
        run_id: The run; the record of another one there tells nothing.
    """
    known: dict[Path, object] = {}
    # Looks are counted: in a time in which this machine stands still there are none.
    for waits in range(1 + math.ceil(WATCH_SECONDS / _LOOK_SECONDS)):
        if waits:
            time.sleep(_LOOK_SECONDS)
        for path in records:
            state = _state(path, run_id)
            # What cannot be read for a moment is no sign of life when it can be again.
            if state is not None and known.setdefault(path, state) != state:
                return True
    return False


def _state(record: Path, run_id: str) -> object:
    with suppress(OSError, ValueError, KeyError, TypeError):
        # A network file system looks at the server again when a directory is opened.
        os.listdir(record.parent)
        with open(open_regular(record), "rb") as file:
            document = json.load(file)
            # A run on a full disk only gives its record another time.
            state = os.fstat(file.fileno()).st_mtime_ns, document["sequence"]
        return state if document["run_id"] == run_id else None
    return None
