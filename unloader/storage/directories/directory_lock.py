"""The lock of a directory, the run that holds it, its status record and the requests to it.

A lock of the file system decides on one machine, and over NFS with a lock service. Some network
file systems keep locks to themselves on each machine. Then the only sign of life is the status
record, which a run replaces about once a second.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import stat
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.json import Decoder

from unloader.storage.storage_protocol import REQUESTS, RUN, STATUS, Holder, Requests, boot_id
from writers.files.publish import PART_SUFFIX
from writers.files.regular import open_regular, read_regular

LOCK = "lock"
"""Name of the file that the running process locks; it records the run."""
WATCH_SECONDS = 10.0
"""A run on another machine whose status record is not replaced for this time is dead. A busy
machine or a slow server may delay that by seconds."""
_LOOK_SECONDS = 0.25
_TRIES, _TRY_SECONDS = 4, 0.05


_HOLDER = Decoder(Holder)


def owners_for(*directories: Path) -> frozenset[int]:
    """Return the users whose records are trusted in these directories.

    In a directory such as /tmp any user can make a file that looks like a record.
    """
    users = {os.geteuid(), 0}
    for directory in directories:
        with suppress(FileNotFoundError, NotADirectoryError):
            users.add(os.stat(directory).st_uid)
    return frozenset(users)


def is_of(path: Path, owners: Collection[int], kind: int = stat.S_IFDIR) -> bool:
    """Return whether a path is a directory, or else a file, of one of these users, and no link."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid in owners


def take_lock(room: Path, *, create: bool = True) -> int | None:
    """Lock a `_run`; return the descriptor, which holds the lock until it is closed.

    None means that another process holds the lock, or lives on a machine that it does not reach. A
    FileNotFoundError means that the run that held it has just removed it, or that it does not exist
    and `create` is off.
    """
    path = f"{room}/{LOCK}"
    descriptor = open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)
    held = None
    try:
        for tries in range(_TRIES, -1, -1):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Another process may only be asking; see `is_locked`.
                if not tries:
                    return None
                time.sleep(_TRY_SECONDS)
        # A lock on a file that was removed or exchanged meanwhile protects nothing.
        locked = os.fstat(descriptor)
        if not os.path.samestat(locked, os.stat(path)):
            raise FileNotFoundError(path)
        # An empty file was made here just now, and names no run yet.
        if not (locked.st_size and lives_elsewhere(room)):
            held = descriptor
        return held
    finally:
        if held is None:
            os.close(descriptor)


def is_locked(room: Path) -> bool:
    """Return whether a process that the lock reaches holds a `_run`; a reader may ask too."""
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


def holder_of(room: Path, owners: Collection[int]) -> Holder:
    if is_of(room, owners) and is_of(room / LOCK, owners, stat.S_IFREG):
        return read_holder(room)
    return Holder()


def read_holder(room: Path) -> Holder:
    """Return the run of a `_run`, as its lock records it; an unreadable lock is an OSError."""
    try:
        return _HOLDER.decode(read_regular(room / LOCK).partition(b"\n")[0])
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return Holder()


_found_dead: set[Holder] = set()
"""Dead runs of other machines; each run is watched once."""


def lives_elsewhere(room: Path) -> bool:
    """Return whether the run of a `_run` that is not locked here lives on another machine.

    The run is watched for seconds if its lock was written on another machine, or on this machine
    before its last start. Its process id means nothing here.
    """
    holder = read_holder(room)
    if holder in _found_dead:
        return False
    # A lock without these fields decides alone.
    if holder.boot_id and boot_id():
        is_elsewhere = holder.boot_id != boot_id()
    else:
        is_elsewhere = bool(holder.host) and holder.host != os.uname().nodename
    if not is_elsewhere:
        return False
    rooms = dict.fromkeys((room, *(Path(each) / RUN for each in holder.places[:1])))
    if is_replaced([each / STATUS for each in rooms], holder.run_id):
        return True
    _found_dead.add(holder)
    return False


def is_replaced(records: Sequence[Path], run_id: str) -> bool:
    """Watch status records of a run; return whether one of them is replaced meanwhile."""
    known: dict[Path, object] = {}
    # Looks are counted, not seconds: a suspended machine makes no looks.
    for waits in range(1 + math.ceil(WATCH_SECONDS / _LOOK_SECONDS)):
        if waits:
            time.sleep(_LOOK_SECONDS)
        for record in records:
            # A record that cannot be read for a moment is not a sign of life afterwards.
            with suppress(OSError, ValueError, KeyError, TypeError):
                # A network file system looks at the server again when a directory is opened.
                os.listdir(record.parent)
                with open(open_regular(record), "rb") as file:
                    document = json.load(file)
                    # A run on a full disk only changes the time of its record.
                    state = os.fstat(file.fileno()).st_mtime_ns, document["sequence"]
                if document["run_id"] == run_id and known.setdefault(record, state) != state:
                    return True
    return False


def read_record(room: Path, name: str) -> bytes:
    try:
        return read_regular(room / name)
    except FileNotFoundError:
        return b""


def replace_status(room: int, data: bytes) -> None:
    """Replace the status record in a `_run`; readers see the old one or the new one.

    `room` is a descriptor: the `_run` has another path after an exchange of directories.
    """
    staged = f"{STATUS}{PART_SUFFIX}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(open_regular(staged, flags, dir_fd=room), "wb") as file:
            file.write(data)
        os.replace(staged, STATUS, src_dir_fd=room, dst_dir_fd=room)
    except OSError:
        with suppress(OSError):
            os.unlink(staged, dir_fd=room)
        with suppress(OSError):
            # A sign of life that needs no space.
            os.utime(STATUS, dir_fd=room)
        raise


def read_requests(room: Path, holder: Holder) -> Requests:
    try:
        # A network file system looks at the server again when a directory is opened.
        if REQUESTS not in os.listdir(room):
            return Requests()
        return Requests.read(read_regular(room / REQUESTS), holder.process)
    except PermissionError:
        # Another user has made it unreadable, perhaps by intention.
        return Requests(stop=True)
    except OSError:
        return Requests()
