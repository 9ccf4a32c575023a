"""The keeper itself: one process, one session, one transaction with an exported snapshot.

Started by `keeping`, it leaves the session, the process group and all streams of the run. So the
end of the run does not end it, and a reader of the run's output does not wait for it. It ends when
the run has succeeded, can no longer be continued, or was not continued in time. It also ends when
the connection is lost, or on request.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import replace

from unloader.errors import UnloaderError, failure_of
from unloader.model import AttemptFailure, SourceSpec
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.keeping import OwnRecord, Record, boundary
from unloader.sources.postgres.session import Session

PROGRAM = "unloader-keeper"
"""Name of a keeper in the server's list of sessions, followed by the run's id. An administrator who
ends a run's sessions by their name spares the keeper, and the run can be continued."""

_MISSES = 2
"""Looks one after the other at which no file names the run: one may be just being written."""


class _Keeper:
    """One keeper, from its first message to its end."""

    def __init__(
        self, pipe: Connection, source: SourceSpec, folder: str, tick_seconds: float
    ) -> None:
        """Connect, take the snapshot, put it on record.

        `folder` has the records; `tick_seconds` are between two looks at connection, run and clock.
        """
        self._pipe: Connection | None = pipe
        self._tick = tick_seconds
        seconds = source.session.keep_snapshot_seconds
        # This process itself keeps the snapshot.
        own = replace(source, session=replace(source.session, keep_snapshot_seconds=0.0))
        session = Session(source, program=PROGRAM)
        self._catalog = PostgresCatalog(session, own)
        snapshot = self._catalog.snapshot("snapshot")
        self._ends = _now() + seconds
        self._misses = 0
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        self._facts = Record(
            run_id=source.session.run_id,
            source=source.location,
            snapshot=snapshot.value,
            taken_at=snapshot.taken_at,
            kept_until=until.isoformat(timespec="seconds"),
            server_process=int(session.value("SELECT pg_backend_pid()")),
            process=os.getpid(),
            host=platform.node(),
            boundary=boundary(),
        )
        self._record = OwnRecord(Path(folder), self._facts)
        pipe.send((str(self._record.path), self._facts))

    def run(self) -> None:
        """Serve the run while it lives, then wait for the end."""
        try:
            due = self._next_look()
            while True:
                if self._answered(max(0.0, due - _now())):
                    continue
                if self._pipe is None and not self._facts.marks:
                    return  # The run never came to where it could be continued.
                if _now() >= due:
                    if not self._is_needed():
                        return
                    due = self._next_look()
        finally:
            self._catalog.close()
            self._record.remove()  # Last: then no process finds us.

    def _answered(self, seconds: float) -> bool:
        """Wait for a message and answer it; return False if none came."""
        if self._pipe is None:
            time.sleep(seconds)
            return False
        try:
            if not self._pipe.poll(seconds):
                return False
            self._pipe.send(self._answer(self._pipe.recv()))
        except (EOFError, OSError):
            self._pipe = None  # The run has ended, one way or another.
            return False
        return True

    def _answer(self, request: tuple[Any, ...]) -> AttemptFailure | None:
        name, *arguments = request
        try:
            if name == "hold":
                self._catalog.hold(*arguments)
            elif name == "keep_until_gone":
                self._facts = replace(self._facts, marks=arguments[0])
                self._record.write(self._facts)
            elif name == "check":
                self._catalog.check_snapshot()
        except Exception as error:  # Every error is reported to the run.
            return failure_of(error)
        return None

    def _is_needed(self) -> bool:
        """Return whether the snapshot is there and anybody may still want it."""
        try:
            self._catalog.check_snapshot()
        except UnloaderError:
            return False
        if not self._record.is_there:
            return False
        if self._record.in_use or self._pipe is not None:
            return True
        named = names_run(self._facts.marks, self._facts.run_id)
        self._misses = 0 if named else self._misses + 1
        return self._misses < _MISSES and _now() < self._ends

    def _next_look(self) -> float:
        now = _now()
        return min(now + self._tick, self._ends) if self._ends > now else now + self._tick


def names_run(marks: tuple[str, ...], run_id: str) -> bool:
    """Return whether a file names the run, which can be continued, or cannot be read now."""
    for mark in marks:
        try:
            if run_id in Path(mark).read_text(encoding="utf-8", errors="replace"):
                return True
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
    return False


def _now() -> float:
    """Return seconds of a clock that counts while the machine sleeps and cannot be set."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _asked_to_end(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


def main() -> None:
    """Keep a snapshot for the process at the other end of the descriptor in `sys.argv`."""
    pipe = Connection(int(sys.argv[1]))
    if os.fork():
        os._exit(0)  # The run need not wait for us, now or ever.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _asked_to_end)
    os.umask(0o077)
    try:
        keeper = _Keeper(pipe, *pipe.recv())
    except EOFError:
        return
    except Exception as error:  # Every error is reported to the run.
        with suppress(OSError):
            pipe.send(failure_of(error))
        return
    keeper.run()


if __name__ == "__main__":
    main()
