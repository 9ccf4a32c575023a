"""Keepers, processes that hold the snapshot of a run that has died, seen from a run or a user.

Each keeper has a record: one file in a directory of the user, locked by the keeper.

The lock shows whether a keeper lives, as the lock ends with the process in every case. A process id
alone proves nothing, as another process may have it by now. Each record has a second file. Every
run that reads at the snapshot locks it: a snapshot in use is not released.

The run starts a keeper, or uses the keeper that kept the snapshot of the earlier run. Messages go
over a pipe that only the run and the keeper have.
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder, encode
from msgspec.structs import asdict

from partition_planner.model import Selector
from unloader.errors import ConfigError, SnapshotGone, SourceError, UsageError, error_of
from unloader.model import AttemptFailure, Extract, SourceSpec
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
    """The same. A run that is going on keeps it longer."""
    server_process: int
    """Of the session on the server, as in pg_stat_activity."""
    process: int
    host: str
    boundary: str
    """Tells from where the keeper's process can be seen: the boot of the machine, the container."""
    marks: tuple[str, ...] = ()
    """Files that name the run while it can be continued."""


_RECORD = Decoder(Record)


class Keeper(Struct, frozen=True, kw_only=True):
    """A keeper that lives."""

    path: Path
    record: Record
    in_use: bool
    """A run is going on that reads at the snapshot."""


class OwnRecord:
    """A keeper's own record, which is there for as long as the keeper lives."""

    def __init__(self, folder: Path, record: Record) -> None:
        """Write and lock it."""
        name = f"{record.run_id or 'run'}.{os.urandom(4).hex()}"
        self.path = folder / (name + RECORD_SUFFIX)
        draft = folder / f".{name}.draft"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(draft, flags, 0o600)
        # A process that finds the record finds it locked.
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self.write(record)
        os.close(os.open(_use_of(self.path), flags, 0o600))
        draft.rename(self.path)

    def write(self, record: Record) -> None:
        data = encode(record)
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def remove(self) -> None:
        _remove(self.path)

    @property
    def is_there(self) -> bool:
        """Whether the file still is in its place: removing it ends a keeper, too."""
        with suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        return False

    @property
    def in_use(self) -> bool:
        return _is_used(self.path)


def folder() -> Path:
    """Return the directory of the records, made where it is missing.

    `ConfigError` where it cannot be made, or others may write it.
    """
    path = _place()
    try:
        if not path.is_absolute():
            raise FileNotFoundError("this user has no home directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot create the directory {path}, which lists kept snapshots: {error}",
            "set XDG_STATE_HOME to a directory that this user may write to",
        ) from error
    _check(path)
    return path


def _place() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    path = Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/state"))
    return path / "unloader" / "keepers"


def _check(path: Path) -> None:
    """Check that only this user can put a record into the directory."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ConfigError(
            f"{path}, which lists kept snapshots, is not a directory that only this user can "
            "access",
            f"correct that: chmod 700 {path}, or set XDG_STATE_HOME to another directory",
        )


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
    if not os.path.lexists(_place()):
        return ()
    _check(_place())
    for path in sorted(_place().glob(f"*{RECORD_SUFFIX}")):
        if not is_alive(path):
            _remove(path)
        elif (record := _read(path)) is not None:
            found.append(Keeper(path=path, record=record, in_use=_is_used(path)))
    return tuple(found)


def use(path: Path) -> int:
    """Keep the snapshot until the descriptor is closed; `OSError` where the keeper has ended."""
    descriptor = open_regular(_use_of(path), os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def end(keeper: Keeper) -> None:
    """End a keeper, and with it the snapshot; return when it is gone.

    `ConfigError` where it runs on another machine, or in another container.
    """
    record = keeper.record
    if record.boundary != boundary():
        raise ConfigError(
            f"the keeper of run {record.run_id} is a process of {record.host}: this is another "
            "machine or container, or the machine was restarted",
            f"end it there, or end its session on the server: SELECT pg_terminate_backend("
            f"{record.server_process})",
        )
    try:
        handle = os.pidfd_open(record.process)
    except ProcessLookupError:
        _remove(keeper.path)
        return
    try:
        # It holds the lock now, so it had the number when the handle was made.
        if is_alive(keeper.path):
            _end_process(handle)
    finally:
        os.close(handle)
    _remove(keeper.path)


def _end_process(handle: int) -> None:
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
        if ended.poll(_END_SECONDS * 1000):
            return


def _read(path: Path) -> Record | None:
    try:
        return _RECORD.decode(read_regular(path))
    except (OSError, ValueError, RecursionError):  # It is just being written, or removed.
        return None


def is_alive(path: Path) -> bool:
    return _locked_by_another(path, fcntl.LOCK_SH)


def _is_used(path: Path) -> bool:
    # Another process that looks now also holds the lock for a moment.
    for nap in (0.0, *_NAPS_SECONDS):
        time.sleep(nap)
        if not _locked_by_another(_use_of(path), fcntl.LOCK_EX):
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


def _use_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(RECORD_SUFFIX) + USE_SUFFIX)


def _remove(path: Path) -> None:
    for each in (path, _use_of(path)):
        with suppress(OSError):
            each.unlink()


TICK_SECONDS = 15.0
"""Between two looks of a keeper at its connection, its run and the clock."""

_POLL_SECONDS = 0.1
_CHECK_SECONDS = 60.0
"""A keeper that has not looked at its connection by then is stopped, or waits for a dead server."""
_PROGRAM = "unloader.sources.postgres.keeper"


class Kept:
    """A snapshot that a keeper holds, and that a run uses until `close`.

    A run that has started the keeper has a pipe to it. Requests are tuples of a name and arguments:
    `hold`, `keep_until_gone` and `check`. A refusal is answered with an `AttemptFailure`. The
    keeper of an earlier run has locked the relations and knows the files already.
    """

    def __init__(
        self,
        path: Path,
        value: str,
        kept_until: str,
        ask: Callable[..., object] | None = None,
        pipe: Connection | None = None,
    ) -> None:
        self.value = value
        """What workers and parent enter."""
        self.kept_until = kept_until
        self.path = path
        self._ask = ask
        self._pipe = pipe
        self._use = use(path)

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        """Lock the run's relations beyond its end, as `Catalog.hold` does."""
        if self._ask is not None:
            self._ask("hold", extract, selectors)

    def keep_until_gone(self, marks: tuple[str, ...]) -> None:
        """Send the files that name the run: from now on the keeper may outlive it."""
        if self._ask is not None:
            self._ask("keep_until_gone", marks)

    def check(self) -> None:
        """Raise `SnapshotGone` if the snapshot is not held any more."""
        if self._ask is not None:
            self._ask("check", seconds=_CHECK_SECONDS)
        elif not is_alive(self.path):
            raise _ended()

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
    pipe = _start()

    def ask(*request: object, seconds: float | None = None) -> Any:
        until = None if seconds is None else time.monotonic() + seconds
        try:
            pipe.send(request)
            while not pipe.poll(_POLL_SECONDS):
                if cancelled():
                    raise SourceError("the call was cancelled", "run again")
                if until is not None and time.monotonic() > until:
                    raise SourceError(
                        "the keeper of the run's snapshot does not answer",
                        "check with `unloader keepers` whether it is alive, and why it waits",
                    )
            answer = pipe.recv()
        except (EOFError, OSError) as error:
            raise _ended() from error
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


def _ended() -> SnapshotGone:
    text = "the keeper of the run's snapshot has ended, so the snapshot is lost"
    return SnapshotGone(text, AGAIN)


def kept_by_another(value: str) -> Kept | None:
    """Return the snapshot of an earlier run if a keeper of this user is known to hold it."""
    keeper = next((each for each in living() if each.record.snapshot == value), None)
    if keeper is None:
        return None
    with suppress(OSError):
        return Kept(keeper.path, value, keeper.record.kept_until)
    return None


def _start() -> Connection:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        paths = [path or os.getcwd() for path in sys.path]
        # A keeper outlives the run: it gets no secrets that are not for the database.
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in (PASSWORD_VARIABLE, "PGPASSWORD")
            or not (is_secret(name) or holds_secret(value))
        }
        done = subprocess.run(
            [sys.executable, "-m", _PROGRAM, str(theirs.fileno())],
            check=False,
            cwd="/",
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if done.returncode:
            raise ConfigError(
                f"cannot start the keeper of the snapshot: {_PROGRAM} ends with status "
                f"{done.returncode}",
                f"find the cause with {sys.executable} -m {_PROGRAM}, or run without "
                "--keep-snapshot",
            )
        return Connection(ours.detach())


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
