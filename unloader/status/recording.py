"""Lets other processes see the progress of a run and end it, by files in its destination.

A separate thread writes the record and looks for requests: a slow disk does not delay the run, and
a long call of the run into its source does not delay the record. A record that cannot be written is
reported once, and the run continues.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec.json import encode
from msgspec.structs import replace

from numa.model import Seat
from unloader.errors import Interrupted, UnloaderError
from unloader.events import Event, Notice, Observer, PhaseStarted
from unloader.redaction import redact
from unloader.status.model import (
    LiveStatus,
    ParallelismStatus,
    UnitCounts,
    Wish,
    WorkerStatus,
    parse_wish,
)
from unloader.status.tally import Speeds, Tally
from unloader.storage.storage_protocol import LiveStorage, boot_id, host_name

FIRST_SECONDS, EVERY_SECONDS = 0.2, 1.0
"""Before the first record, which a run of a moment does not need, and between two."""

_PATIENCE_SECONDS = 5.0
"""How long the end of a run waits for a record that is being written to a storage that hangs."""

_LONGEST_ERROR = 1000

STOP_ASKED = "`unloader stop` was called: the work units in progress are stopped"


class LiveRun:
    """An active run: takes its events, shows their sums, and knows if it is to end."""

    def __init__(
        self,
        run_id: str,
        seats: Sequence[Seat],
        observe: Observer,
        asked: Callable[[], bool],
    ) -> None:
        self._run_id, self._seats = run_id, tuple(seats)
        self._observe, self._asked = observe, asked
        self.tally = Tally(time.monotonic())
        self.tally.add(PhaseStarted(phase="planning"), time.monotonic())
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._sequence = 0
        self._speeds = Speeds()
        self._notices: list[str] = []
        self._has_failed = False
        self.resumable: bool | None = None
        """Whether a later process can read at the same snapshot; None = not known yet."""
        self.snapshot_kept_until = ""
        """ISO 8601; empty without a keeper."""
        self.stopped_by_others = False
        """The end was asked for by way of the storage."""
        self._wish_read = b""
        self._wishes: list[Wish] = []
        self.parallelism: ParallelismStatus | None = None
        """How many workers work now; replaced as a whole by the code that decides."""
        self._storages: Sequence[LiveStorage] = ()
        self._thread: threading.Thread | None = None

    def record_in(self, *storages: LiveStorage) -> None:
        """Begin to write the record to where others look for it; a stream has no such place."""
        if storages:
            self._storages = storages
            self._thread = threading.Thread(target=self._record, name="status", daemon=True)
            self._thread.start()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self.tally.add(event, time.monotonic())
        while self._notices:
            self._observe(Notice(text=self._notices.pop()))
        self._observe(event)

    def stop(self) -> bool:
        return self._asked() or self.stopped_by_others

    def told_by(self, error: UnloaderError) -> UnloaderError:
        """Return an error that names the user who asked for the end: its raiser knows signals
        alone."""
        if not (isinstance(error, Interrupted) and self.stopped_by_others):
            return error
        message = error.message.replace("stopped by a signal", "stopped by `unloader stop`", 1)
        return Interrupted(message, error.hint)

    def wish(self) -> Wish | None:
        """Return a change that is asked of the run, once."""
        return self._wishes.pop(0) if self._wishes else None

    def close(self, error: BaseException | None = None) -> None:
        """End the recording; an error shows once more how far the run came. May be called again."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)
            if error is not None and not self._thread.is_alive():
                self._show(error)

    def _record(self) -> None:
        wait = FIRST_SECONDS
        while not self._over.wait(wait):
            wait = EVERY_SECONDS
            if not self.stopped_by_others and any(each.stop_asked() for each in self._storages):
                self._notices.append(STOP_ASKED)
                self.stopped_by_others = True
            found = next(filter(None, (each.wish() for each in self._storages)), b"")
            if found != self._wish_read:
                self._wish_read = found
                wish = parse_wish(found)
                if wish is not None:
                    self._wishes.append(wish)
                elif found:
                    self._notices.append("the request to change the run cannot be read")
            self._show()

    def _show(self, error: BaseException | None = None) -> None:
        self._sequence += 1
        with self._lock:
            status = encode(self._status(time.monotonic(), error))
        for storage in self._storages:
            try:
                storage.show(status)
            except OSError as trouble:
                if not self._has_failed:
                    self._has_failed = True
                    why = trouble.strerror or str(trouble)
                    self._notices.append(f"`unloader status` cannot follow this run: {why}")

    def _status(self, now: float, error: BaseException | None) -> LiveStatus:
        tally, at = self.tally, datetime.now(UTC)
        figures, running = tally.figures(now), len(tally.running)
        self._speeds.add(now, figures.rows)
        # Without an estimate the figures count units, which may be of very different sizes.
        is_estimated = tally.run.rows is not None
        since = at - timedelta(seconds=now - tally.phase_started)
        return LiveStatus(
            run_id=self._run_id,
            sequence=self._sequence,
            updated=at.isoformat(timespec="milliseconds"),
            host=host_name(),
            boot_id=boot_id(),
            pid=os.getpid(),
            table=tally.run.table,
            phase=tally.phase,
            phase_since=since.isoformat(timespec="seconds"),
            units=UnitCounts(
                total=figures.units,
                done=figures.units_done,
                running=running,
                waiting=max(0, figures.units - figures.units_done - running - tally.given_up),
                failed=tally.given_up,
            ),
            tables=figures.tables,
            rows=figures.rows,
            bytes=figures.bytes,
            rows_expected=tally.run.rows,
            bytes_expected=figures.bytes_expected if is_estimated else None,
            rows_per_second=round(figures.rows_per_second, 1),
            mean_rows_per_second=round(figures.mean_rows_per_second, 1),
            speeds=self._speeds.values(),
            bytes_per_second=_rounded(figures.bytes_per_second),
            fraction=round(figures.fraction, 4) if is_estimated else None,
            seconds=round(figures.seconds, 1),
            seconds_left=_rounded(figures.seconds_left) if is_estimated else None,
            workers=tuple(_worker(tally, each, now) for each in self._seats[: tally.run.workers]),
            retries=tally.retries,
            last_error=_shown(str(error) if error is not None else tally.last_error),
            last_notice=_shown(tally.last_notice),
            parallelism=self.parallelism,
            stopping=self.stop(),
            resumable=self.resumable,
            snapshot_kept_until=self.snapshot_kept_until,
            ended="" if error is None else type(error).__name__,
        )


def _worker(tally: Tally, seat: Seat, now: float) -> WorkerStatus:
    idle = WorkerStatus(worker=seat.worker, node=seat.node, cpus=seat.cpus)
    running = tally.running.get(seat.worker)
    if running is not None:
        return replace(
            idle,
            unit=running.unit,
            partition=running.partition,
            attempt=running.attempt,
            rows=running.rows,
            bytes=running.bytes,
            seconds=round(now - running.started, 1),
            waits_for=running.waits_for,
            waits_detail=_shown(running.waiting_for),
        )
    retry_at = min(tally.retry_at.values(), default=None)
    if retry_at is None:
        return idle
    wait = round(max(0.0, retry_at - now), 1)
    return replace(idle, waits_for="retry", retry_in_seconds=wait)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _shown(text: str) -> str:
    return redact(text)[:_LONGEST_ERROR]
