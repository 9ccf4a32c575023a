"""A run's and a user's side of keepers: their messages, and their list.

The run starts a keeper, or uses the keeper that kept the snapshot of the earlier run. Messages go
over a pipe that only the run and the keeper have.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct

from partition_planner.model import Selector
from unloader.errors import ConfigError, SnapshotGone, SourceError, UsageError
from unloader.failures import error_of
from unloader.model import AttemptFailure, Extract, SourceSpec
from unloader.redaction import PASSWORD_VARIABLE, holds_secret, is_secret
from unloader.sources.postgres.errors import AGAIN
from unloader.sources.postgres.keeping import records
from unloader.sources.postgres.keeping.records import Keeper


class Begin(Struct, frozen=True, kw_only=True):
    """Take the snapshot; answered by `Begun`."""

    source: SourceSpec
    seconds: float
    """How long it is kept where no run uses it."""
    folder: str
    """Of the records."""
    tick_seconds: float
    """The time between two looks at connection, run and clock."""


class Begun(Struct, frozen=True, kw_only=True):
    """The snapshot is taken."""

    value: str
    record: str
    """Path of the keeper's record."""
    kept_until: str


class Hold(Struct, frozen=True, kw_only=True):
    """Lock what a run reads, as `Catalog.hold` does."""

    extract: Extract
    selectors: tuple[Selector, ...]


class KeepUntilGone(Struct, frozen=True, kw_only=True):
    """Keep the snapshot beyond the run, for as long as one of these files names it."""

    marks: tuple[str, ...]


class Check(Struct, frozen=True, kw_only=True):
    """Report whether the snapshot is still held."""


class Done(Struct, frozen=True, kw_only=True):
    """The request was carried out."""


Message = Begin | Hold | KeepUntilGone | Check
Answer = Begun | Done | AttemptFailure


TICK_SECONDS = 15.0
"""Between two looks of a keeper at its connection, its run and the clock."""

_POLL_SECONDS = 0.1
_CHECK_SECONDS = 60.0
"""A keeper that has not looked at its connection by then is stopped, or waits for a dead server."""
_PROGRAM = "unloader.sources.postgres.keeping.process"


class Kept:
    """A snapshot that a keeper holds, and that a run uses until `close`."""

    def __init__(self, path: Path, value: str, kept_until: str) -> None:
        """Use the snapshot of a keeper.

        Raises:
            OSError: The keeper has ended.
        """
        self.value = value
        """What workers and parent enter."""
        self.kept_until = kept_until
        """ISO 8601, UTC."""
        self._path = path
        self._use = records.use(path)

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        """Lock the run's relations beyond its end. An earlier keeper has locked them already."""

    def keep_until_gone(self, marks: tuple[str, ...]) -> None:
        """Send the files that name the run. An earlier run's keeper knows them already."""

    def check(self) -> None:
        """Return if the snapshot is still held.

        Raises:
            SnapshotGone: It is not.
        """
        if not records.is_alive(self._path):
            raise _ended()

    def end(self) -> None:
        self.close()
        for keeper in records.living():
            if keeper.path == self._path:
                records.end(keeper)

    def close(self) -> None:
        if self._use >= 0:
            os.close(self._use)
        self._use = -1


class StartedKeeper(Kept):
    """A keeper that this run has started, for the runs that continue it."""

    def __init__(self, source: SourceSpec, cancelled: Callable[[], bool]) -> None:
        """Start a keeper that takes the snapshot.

        Args:
            source: Its database, and how long it keeps the snapshot.
            cancelled: True ends the wait for an answer, now and later.

        Raises:
            ConfigError: Its record cannot be stored, or a driver is missing.
        """
        self._cancelled = cancelled
        self._pipe = _start()
        try:
            begin = Begin(
                source=source,
                seconds=source.session.keep_snapshot_seconds,
                folder=str(records.folder()),
                tick_seconds=TICK_SECONDS,
            )
            begun = self._ask(begin)
            assert isinstance(begun, Begun)
            super().__init__(Path(begun.record), begun.value, begun.kept_until)
            self._end_earlier(source.session.run_id)
        except BaseException:
            self._pipe.close()
            raise

    def _end_earlier(self, run_id: str) -> None:
        """End earlier keepers of the same run: the run starts again with our snapshot."""
        for keeper in records.living():
            if run_id and keeper.record.run_id == run_id and keeper.path != self._path:
                records.end(keeper)

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        """Ask the keeper to lock the relations that the run reads.

        Raises:
            SourceError: A relation cannot be locked, or has changed since the snapshot.
        """
        self._ask(Hold(extract=extract, selectors=selectors))

    def keep_until_gone(self, marks: tuple[str, ...]) -> None:
        """Tell the keeper which files name the run: from now on it may outlive us."""
        self._ask(KeepUntilGone(marks=marks))

    def check(self) -> None:
        """Ask the keeper whether its connection stands.

        Raises:
            SnapshotGone: It does not.
        """
        self._ask(Check(), seconds=_CHECK_SECONDS)

    def close(self) -> None:
        """Stop using the snapshot; the keeper continues if the run can be continued."""
        super().close()
        self._pipe.close()

    def _ask(self, message: Message, seconds: float | None = None) -> Answer:
        until = None if seconds is None else time.monotonic() + seconds
        try:
            self._pipe.send(message)
            while not self._pipe.poll(_POLL_SECONDS):
                if self._cancelled():
                    raise SourceError("the call was cancelled", "run again")
                if until is not None and time.monotonic() > until:
                    raise SourceError(
                        "the keeper of the run's snapshot does not answer",
                        "check with `unloader keepers` whether it is alive, and why it waits",
                    )
            answer: Answer | AttemptFailure = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise _ended() from error
        if isinstance(answer, AttemptFailure):
            raise error_of(answer)
        return answer


def _ended() -> SnapshotGone:
    text = "the keeper of the run's snapshot has ended, so the snapshot is lost"
    return SnapshotGone(text, AGAIN)


def kept_by_another(value: str) -> Kept | None:
    """Return the snapshot of an earlier run if a keeper of this user is known to hold it."""
    keeper = records.keeper_of(value)
    if keeper is None:
        return None
    with suppress(OSError):
        return Kept(keeper.path, value, keeper.record.kept_until)
    return None


def _start() -> Connection:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        paths = [path or os.getcwd() for path in sys.path]
        done = subprocess.run(
            [sys.executable, "-m", _PROGRAM, str(theirs.fileno())],
            check=False,
            cwd="/",
            env={**_environment(), "PYTHONPATH": os.pathsep.join(paths)},
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


def _environment() -> dict[str, str]:
    """Return our variables without secrets that are not for the database: a keeper outlives us."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in (PASSWORD_VARIABLE, "PGPASSWORD") or not (is_secret(name) or holds_secret(value))
    }


def listed(ended: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the keepers that live, as values for JSON, and the runs whose keepers were ended."""
    return {"keepers": [_entry(keeper) for keeper in records.living()], "ended": list(ended)}


def ended(run_id: str | None) -> dict[str, Any]:
    """End the keepers of a run, or all keepers that no run uses; return as `listed`.

    Raises:
        UsageError: The run has no keeper, or is still running.
        ConfigError: A keeper cannot be ended from here.
    """
    found = [each for each in records.living() if run_id in (None, each.record.run_id)]
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
        records.end(keeper)
    return listed(tuple(dict.fromkeys(each.record.run_id for each in unused)))


def _entry(keeper: Keeper) -> dict[str, Any]:
    record = keeper.record
    return {
        "run_id": record.run_id,
        "source": record.source,
        "snapshot": record.snapshot,
        "taken_at": record.taken_at,
        "kept_until": record.kept_until,
        "in_use": keeper.in_use,
        "server_process": record.server_process,
        "process": record.process,
        "host": record.host,
        "destinations": [str(Path(mark).parents[1]) for mark in record.marks],
    }
