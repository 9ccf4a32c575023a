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

from partition_planner.model import Selector
from unloader.errors import ConfigError, SnapshotGone, SourceError, UsageError
from unloader.failures import error_of
from unloader.model import AttemptFailure, Extract, SourceSpec
from unloader.redaction import PASSWORD_VARIABLE, holds_secret, is_secret
from unloader.sources.postgres.errors import AGAIN
from unloader.sources.postgres.keeping import records

TICK_SECONDS = 15.0
"""Between two looks of a keeper at its connection, its run and the clock."""

_POLL_SECONDS = 0.1
_CHECK_SECONDS = 60.0
"""A keeper that has not looked at its connection by then is stopped, or waits for a dead server."""
_PROGRAM = "unloader.sources.postgres.keeping.process"


class Kept:
    """A snapshot that a keeper holds, and that a run uses until `close`.

    A run that has started the keeper has a pipe to it. Requests are tuples of a name and arguments:
    `hold`, `keep_until_gone` and `check`. A refusal is answered with an `AttemptFailure`. The
    keeper of an earlier run has locked the relations and knows the files already.

    Raises:
        OSError: The keeper has ended.
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
        self._use = records.use(path)

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
        elif not records.is_alive(self.path):
            raise _ended()

    def end(self) -> None:
        self.close()
        for keeper in records.living():
            if keeper.path == self.path:
                records.end(keeper)

    def close(self) -> None:
        """Stop using the snapshot; the keeper continues if the run can be continued."""
        if self._use >= 0:
            os.close(self._use)
        self._use = -1
        if self._pipe is not None:
            self._pipe.close()


def start_keeper(source: SourceSpec, cancelled: Callable[[], bool]) -> Kept:
    """Start a keeper that takes the snapshot, and end earlier keepers of the same run.

    Args:
        source: Its database, and how long it keeps the snapshot.
        cancelled: True ends the wait for an answer, now and later.

    Raises:
        ConfigError: Its record cannot be stored, or a driver is missing.
        SourceError: The server refused.
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
        path, record = ask(source, str(records.folder()), TICK_SECONDS)
        kept = Kept(Path(path), record.snapshot, record.kept_until, ask, pipe)
        # The run starts again with our snapshot.
        for keeper in records.living():
            if record.run_id and keeper.record.run_id == record.run_id and keeper.path != kept.path:
                records.end(keeper)
    except BaseException:
        pipe.close()
        raise
    return kept


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
    found = [
        {
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
        for keeper in records.living()
        for record in (keeper.record,)
    ]
    return {"keepers": found, "ended": list(ended)}


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
