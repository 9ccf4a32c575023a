"""Keepers, processes that hold the snapshot of a run that has died, seen from a run or a user.

Each keeper has a record: a file in a directory of the user, which the keeper locks. The lock ends
with the process in every case; a process id proves nothing, as another process may have it by now.
Each record has a second file, which every run that reads at the snapshot locks: a snapshot in use
is not released. The run starts a keeper and has a pipe to it, or uses the keeper of the earlier
run.
"""

from __future__ import annotations

import fcntl
import os
import platform
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import decode
from msgspec.structs import asdict

from unloader.errors import ConfigError, SnapshotGone, SourceError, UsageError, error_of
from unloader.model import AttemptFailure, SourceSpec
from unloader.redaction import PASSWORD_VARIABLE, holds_secret, is_secret
from unloader.sources.postgres.errors import AGAIN
from writers.files.regular import open_regular, read_regular

RECORD_SUFFIX = ".json"
USE_SUFFIX = ".used"

_END_SECONDS = 10.0
"""A keeper that was asked to end and has not is killed then; its session ends with its socket."""

_NAPS_SECONDS = (0.003, 0.011)


class Record(Struct, frozen=True, kw_only=True):
    """A keeper's description of itself."""

    run_id: str
    source: str
    snapshot: str
    """Its value, as in the manifest."""
    taken_at: str
    kept_until: str
    """In ISO 8601. A run that is in progress keeps it longer."""
    server_process: int
    """Of the session on the server, as in pg_stat_activity."""
    process: int
    host: str
    boundary: str
    """Result of `boundary` in the keeper."""
    marks: tuple[str, ...] = ()
    """Files that name the run while it can be continued."""


class Keeper(Struct, frozen=True, kw_only=True):
    path: Path
    record: Record
    in_use: bool
    """A run is in progress that reads at the snapshot."""


def folder(*, make: bool = True) -> Path:
    """Return the directory of the records; `ConfigError` where others may write it."""
    base = os.environ.get("XDG_STATE_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.local/state")
    path = Path(base, "unloader", "keepers")
    try:
        if make and not path.is_absolute():
            raise FileNotFoundError("this user has no home directory")
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        if not make and isinstance(error, FileNotFoundError | NotADirectoryError):
            return path
        verb = "create" if make else "read"
        raise ConfigError(
            f"cannot {verb} the directory {path}, which lists kept snapshots: "
            f"{error.strerror or error}",
            "set XDG_STATE_HOME to a directory that this user may write to",
        ) from error
    # Only this user may put a record into the directory.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ConfigError(
            f"{path}, which lists kept snapshots, is not a directory that only this user can "
            "access",
            f"correct that: chmod 700 {path}, or set XDG_STATE_HOME to another directory",
        )
    return path


def boundary() -> str:
    """Return a text that is equal in processes that can see and end each other."""
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts) or platform.node()


def living() -> tuple[Keeper, ...]:
    """Return the keepers of this user, by run; records of dead keepers are removed."""
    found = []
    for path in sorted(folder(make=False).glob(f"*{RECORD_SUFFIX}")):
        if not is_alive(path):
            remove(path)
            continue
        # A record may be just being written, or removed.
        with suppress(OSError, ValueError, RecursionError):
            record = decode(read_regular(path), type=Record)
            found.append(Keeper(path=path, record=record, in_use=in_use(path)))
    return tuple(found)


def end(keeper: Keeper) -> None:
    """End a keeper and its snapshot; `ConfigError` where it runs on another machine."""
    record = keeper.record
    if record.boundary != boundary():
        raise ConfigError(
            f"the keeper of run {record.run_id} is a process of {record.host}: this is another "
            "machine or container, or the machine was restarted",
            f"end it there, or end its session on the server: SELECT pg_terminate_backend("
            f"{record.server_process})",
        )
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(record.process)
        try:
            # A living keeper holds the lock now, so it had the number when the handle was made.
            signals = (signal.SIGTERM, signal.SIGKILL) if is_alive(keeper.path) else ()
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            for number in signals:
                signal.pidfd_send_signal(handle, number)
                if ended.poll(_END_SECONDS * 1000):
                    break
        finally:
            os.close(handle)
    remove(keeper.path)


def is_alive(path: Path) -> bool:
    return _locked_by_another(path, fcntl.LOCK_SH)


def in_use(path: Path) -> bool:
    """Return whether a run that is in progress reads at the snapshot of a keeper's record."""
    # Another process that looks now also holds the lock for a moment.
    for nap in (0.0, *_NAPS_SECONDS):
        time.sleep(nap)
        if not _locked_by_another(use_of(path), fcntl.LOCK_EX):
            return False
    return True


def _locked_by_another(path: Path, kind: int) -> bool:
    try:
        descriptor = open_regular(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:  # It is locked, or there is no answer: then it must not count as dead.
        return True
    finally:
        os.close(descriptor)
    return False


def use_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(RECORD_SUFFIX) + USE_SUFFIX)


def remove(path: Path) -> None:
    for each in (path, use_of(path)):
        with suppress(OSError):
            each.unlink()


TICK_SECONDS = 15.0
"""Between two looks of a keeper at its connection, its run and the clock."""

_POLL_SECONDS = 0.1
_CHECK_SECONDS = 60.0
"""A keeper that has not looked at its connection by then is stopped, or waits for a dead server."""
_PROGRAM = "unloader.sources.postgres.keeper"
_ENDED = "the keeper of the run's snapshot has ended, so the snapshot is lost"


class Kept:
    """A snapshot that a keeper holds, and that a run uses until `close`.

    A run that has started the keeper asks it over a pipe. The keeper of an earlier run has locked
    the relations and knows the files already.
    """

    def __init__(
        self,
        path: Path,
        value: str,
        kept_until: str,
        ask: Callable[..., object] | None = None,
        pipe: Connection | None = None,
    ) -> None:
        """Use the snapshot `value`; `OSError` where the keeper has ended."""
        self.value, self.kept_until, self.path = value, kept_until, path
        self._ask, self._pipe = ask, pipe
        self._use = open_regular(use_of(path), os.O_RDWR)
        fcntl.flock(self._use, fcntl.LOCK_SH)

    def ask(self, name: str, *arguments: object) -> None:
        """Send a request to a keeper that this run has started: `hold`, `keep_until_gone`."""
        if self._ask is not None:
            self._ask(name, *arguments)

    def check(self) -> None:
        """Raise `SnapshotGone` if the snapshot is not held any more."""
        if self._ask is not None:
            self._ask("check", seconds=_CHECK_SECONDS)
        elif not is_alive(self.path):
            raise SnapshotGone(_ENDED, AGAIN)

    def end(self) -> None:
        self.close()
        for keeper in living():
            if keeper.path == self.path:
                end(keeper)

    def close(self) -> None:
        """Stop using the snapshot; the keeper continues if the run can be continued."""
        if self._use >= 0:
            os.close(self._use)
        self._use = -1
        if self._pipe is not None:
            self._pipe.close()


def start_keeper(source: SourceSpec, cancelled: Callable[[], bool]) -> Kept:
    """Start a keeper that takes the snapshot, and end earlier keepers of the same run.

    True of `cancelled` ends the wait for an answer, now and later.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # A keeper outlives the run: it gets no secrets that are not for the database.
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in (PASSWORD_VARIABLE, "PGPASSWORD")
            or not (is_secret(name) or holds_secret(value))
        }
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        status = subprocess.run(
            [sys.executable, "-m", _PROGRAM, str(theirs.fileno())],
            check=False,
            cwd="/",
            env=environment,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
        if status:
            raise ConfigError(
                f"cannot start the keeper of the snapshot: {_PROGRAM} ends with status {status}",
                f"find the cause with {sys.executable} -m {_PROGRAM}, or run without "
                "--keep-snapshot",
            )
        pipe = Connection(ours.detach())

    def ask(*request: object, seconds: float = inf) -> Any:
        until = time.monotonic() + seconds
        try:
            pipe.send(request)
            while not pipe.poll(_POLL_SECONDS):
                if cancelled():
                    raise SourceError("the call was cancelled", "run again")
                if time.monotonic() > until:
                    raise SourceError(
                        "the keeper of the run's snapshot does not answer",
                        "check with `unloader keepers` whether it is alive, and why it waits",
                    )
            answer = pipe.recv()
        except (EOFError, OSError) as error:
            raise SnapshotGone(_ENDED, AGAIN) from error
        if isinstance(answer, AttemptFailure):
            raise error_of(answer)
        return answer

    try:
        path, record = ask(source, str(folder()), TICK_SECONDS)
        kept = Kept(Path(path), record.snapshot, record.kept_until, ask, pipe)
        # The run starts again with our snapshot.
        for keeper in living():
            if record.run_id and keeper.record.run_id == record.run_id and keeper.path != kept.path:
                end(keeper)
    except BaseException:
        pipe.close()
        raise
    return kept


def kept_by_another(value: str) -> Kept | None:
    """Return the snapshot of an earlier run if a keeper of this user is known to hold it."""
    keeper = next((each for each in living() if each.record.snapshot == value), None)
    if keeper is None:
        return None
    with suppress(OSError):
        return Kept(keeper.path, value, keeper.record.kept_until)
    return None


def listed(ended: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the keepers that live, as values for JSON, and the runs whose keepers were ended."""
    found = []
    for keeper in living():
        record = asdict(keeper.record)
        destinations = [str(Path(mark).parents[1]) for mark in record.pop("marks")]
        del record["boundary"]
        found.append({**record, "in_use": keeper.in_use, "destinations": destinations})
    return {"keepers": found, "ended": list(ended)}


def ended(run_id: str | None) -> dict[str, Any]:
    """End the keepers of a run, or all keepers that no run uses; return as `listed`."""
    found = [each for each in living() if run_id in (None, each.record.run_id)]
    if run_id is not None and not found:
        raise UsageError(
            f"no snapshot is kept for run {run_id}",
            "list the kept snapshots with: unloader keepers",
        )
    if run_id is not None and any(each.in_use for each in found):
        raise UsageError(
            f"run {run_id} is in progress and reads at the snapshot that is kept for it",
            "stop the run first",
        )
    unused = [each for each in found if not each.in_use]
    for keeper in unused:
        end(keeper)
    return listed(tuple(dict.fromkeys(each.record.run_id for each in unused)))
