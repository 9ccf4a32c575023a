"""The keeper itself: one process, one session, one transaction with an exported snapshot.

Started by `keeping`, it leaves the session, the process group and all streams of the run. So the
end of the run does not end it, and a reader of the run's output does not wait for it. It ends when
the run has succeeded, can no longer be continued, or was not continued in time. It also ends when
the connection is lost, or on request.
"""

from __future__ import annotations

import fcntl
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

from msgspec.json import encode
from msgspec.structs import replace

from unloader.errors import UnloaderError, failure_of
from unloader.model import AttemptFailure, SourceSpec
from unloader.sources.postgres import keeping
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.session import Session

PROGRAM = "unloader-keeper"
"""Name of a keeper in the server's list of sessions, followed by the run's id. An administrator who
ends a run's sessions by their name spares the keeper, and the run can be continued."""

_MISSES = 2
"""Looks one after the other at which no file names the run: one may be just being written."""


def _serve(pipe: Connection, source: SourceSpec, folder: str, tick_seconds: float) -> None:
    """Connect, take the snapshot and record it; serve the run while it lives; wait for the end.

    `folder` has the records; `tick_seconds` are between two looks at connection, run and clock.
    """
    seconds = source.session.keep_snapshot_seconds
    # This process itself keeps the snapshot.
    own = replace(source, session=replace(source.session, keep_snapshot_seconds=0.0))
    session = Session(source, program=PROGRAM)
    catalog = PostgresCatalog(own, session)
    snapshot = catalog.snapshot("snapshot")
    ends, misses = _now() + seconds, 0
    facts = keeping.Record(
        run_id=source.session.run_id,
        source=source.location,
        snapshot=snapshot.value,
        taken_at=snapshot.taken_at,
        kept_until=(datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds"),
        server_process=int(session.value("SELECT pg_backend_pid()")),
        process=os.getpid(),
        host=platform.node(),
        boundary=keeping.boundary(),
    )
    name = f"{facts.run_id or 'run'}.{os.urandom(4).hex()}"
    path, draft = Path(folder, name + keeping.RECORD_SUFFIX), Path(folder, f".{name}.draft")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600)
    # A process that finds the record finds it locked.
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    def write() -> None:
        data = encode(facts)
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))

    def next_look() -> float:
        now = _now()
        return min(now + tick_seconds, ends) if ends > now else now + tick_seconds

    def answer(name: str, *arguments: Any) -> AttemptFailure | None:
        nonlocal facts
        try:
            if name == "hold":
                catalog.hold(*arguments)
            elif name == "keep_until_gone":
                facts = replace(facts, marks=arguments[0])
                write()
            elif name == "check":
                catalog.check_snapshot()
        except Exception as error:  # Every error is reported to the run.
            return failure_of(error)
        return None

    write()
    os.close(os.open(keeping.use_of(path), flags, 0o600))
    draft.rename(path)
    pipe.send((str(path), facts))
    has_run, due = True, next_look()
    try:
        while True:
            left = max(0.0, due - _now())
            try:
                if not has_run:
                    time.sleep(left)
                elif pipe.poll(left):
                    pipe.send(answer(*pipe.recv()))
                    continue
            except (EOFError, OSError):
                has_run = False  # The run has ended, one way or another.
            if not has_run and not facts.marks:
                return  # The run never came to where it could be continued.
            if _now() < due:
                continue
            try:
                catalog.check_snapshot()
                # Removing the record ends a keeper, too.
                if not os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return
            except (UnloaderError, OSError):
                return
            if not (has_run or keeping.in_use(path)):
                misses = 0 if _names_run(facts) else misses + 1
                if misses >= _MISSES or _now() >= ends:
                    return
            due = next_look()
    finally:
        catalog.close()
        keeping.remove(path)  # Last: then no process finds us.


def _names_run(facts: keeping.Record) -> bool:
    """Return whether a file names the run, which can be continued, or cannot be read now."""
    for mark in facts.marks:
        try:
            if facts.run_id in Path(mark).read_text(encoding="utf-8", errors="replace"):
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
        _serve(pipe, *pipe.recv())
    except EOFError:
        return
    except Exception as error:  # Every error is reported to the run.
        with suppress(OSError):
            pipe.send(failure_of(error))


if __name__ == "__main__":
    main()
