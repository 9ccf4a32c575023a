"""The progress of a run and its speed, and the record with which other processes see them.

A `Tally` adds up the events of a run; the clock is the caller's. A separate thread writes the
record and looks for requests: a slow disk does not delay the run, and a long call of the run into
its source does not delay the record. A record that cannot be written is reported once, and the run
continues.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from numa.model import Seat
from unloader.events import (
    DirectoryFilled,
    Event,
    Notice,
    Observer,
    Phase,
    PhaseStarted,
    RunFinished,
    RunStarted,
    TableFinished,
    TableStaged,
    UnitAdvanced,
    UnitFailed,
    UnitFinished,
    UnitsKept,
    UnitStarted,
    Verified,
)
from unloader.model import TableCounts
from unloader.redaction import redact
from unloader.storage.storage_protocol import RunStorage, boot_id

if TYPE_CHECKING:
    from unloader.status.model import LiveStatus, ParallelismStatus, Speeds, Wish, WorkerStatus

RATE_SECONDS = 30.0
"""Rates are averages over this much of the past: a shorter span jumps, a longer one hides a
stall."""


_SAYS_ENOUGH = 0.01
"""Part of a run from which on its bytes are an estimate of all."""


class Running(Struct):
    unit: str
    partition: str | None
    attempt: int
    rows_expected: int | None
    started: float
    rows: int = 0
    bytes: int = 0
    waiting_for: str = ""
    """The disk that has no room, as text; empty if there is room."""
    waits_for: Literal["nothing", "source", "destination", "limit"] = "nothing"

    def rows_per_second(self, now: float) -> float:
        return self.rows / max(now - self.started, 1e-3)


class Figures(Struct, frozen=True, kw_only=True):
    """Everything a display shows of the run as a whole, at one point in time."""

    units_done: int
    units: int
    rows: int
    bytes: int
    rows_per_second: float
    bytes_per_second: float | None
    """None until the first bytes have left a worker's buffers: how many there are is not known."""
    fraction: float
    """0 to 1; of the expected rows if every unit has an estimate, else of the units."""
    seconds: float
    """Since the run began to plan, as in the manifest."""
    seconds_left: float | None
    mean_rows_per_second: float = 0.0
    """Since the first unit was handed out."""
    units_kept: int = 0
    """Done before this process, which resumed an interrupted run; part of `units_done`."""
    rows_kept: int = 0
    """In them; no rate counts these."""
    bytes_kept: int = 0
    directories: tuple[tuple[str, int], ...] = ()
    """Each of several directories with the bytes of finished units in it."""
    tables: TableCounts | None = None
    """None in a run over one table."""

    @property
    def bytes_expected(self) -> int | None:
        """The estimate of all bytes; None while too few are written."""
        return None if self.fraction < _SAYS_ENOUGH else round(self.bytes / self.fraction)


class Tally:
    """The state that the events of one run add up to."""

    def __init__(self, now: float) -> None:
        """Start with nothing known; `now` is in seconds of a clock that only goes forward."""
        self.run = RunStarted(run_id="", table="", units=0, workers=0, rows=None, bytes=None)
        self.phase: Phase = "connecting"
        self.phase_started = self._began = now
        self.running: dict[int, Running] = {}
        """By worker."""
        self.retry_at: dict[str, float] = {}
        """By unit that failed and waits: when its next attempt is due."""
        self.verified: Verified | None = None
        """The progress of the current phase, where it checks files or units."""
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._started = now
        self._finished: RunFinished | None = None
        self.units_done = self.rows = self.bytes = self._rows_expected = 0
        """Of finished units."""
        self._samples: deque[tuple[float, int, int]] = deque([(now, 0, 0)])
        self.running.clear()
        self.retry_at.clear()
        self.retries = self.units_failed = 0
        self.last_error = self.last_notice = ""
        self._directories: dict[str, int] = {}
        self._fraction_kept = 0.0
        self.tables: TableCounts | None = None
        """None in a run over one table."""
        if self.run.tables > 1:
            self.tables = TableCounts(total=self.run.tables, largest_open=self.run.largest_table)
        self.kept = UnitsKept(units=0, rows=0, bytes=0)
        """The work of an earlier process of the run: no rate counts it."""

    def add(self, event: Event, now: float) -> None:
        if isinstance(event, RunStarted):
            self.run, self.phase, self.phase_started = event, "unloading", now
            self._begin(now)
        elif isinstance(event, UnitsKept):
            self.units_done, self.rows, self.bytes = event.units, event.rows, event.bytes
            self._rows_expected, self.kept = event.rows, event
            if self.tables is not None:
                self.tables = replace(self.tables, done=event.tables)
            self._started = now
            self._samples = deque([(now, event.rows, event.bytes)])
            self._fraction_kept = self._fraction()
        elif isinstance(event, PhaseStarted):
            self.phase, self.phase_started, self.verified = event.phase, now, None
            if event.phase == "connecting":
                self._began = now
        elif isinstance(event, RunFinished):
            # Joined files have one header instead of many.
            self._finished, self.rows, self.bytes = event, event.rows, event.bytes
        elif isinstance(event, UnitStarted):
            self.running[event.worker] = Running(
                event.unit, event.partition, event.attempt, event.rows, now
            )
            self.retry_at.pop(event.unit, None)
        elif isinstance(event, UnitAdvanced):
            current = self.running.get(event.worker)
            if current is not None and current.unit == event.unit:
                current.rows, current.bytes = event.rows, event.bytes
                current.waiting_for = event.waiting_for
                current.waits_for = event.waits_for
        elif isinstance(event, UnitFinished):
            current = self.running.pop(event.worker, None)
            self.units_done += 1
            self.rows += event.rows
            self.bytes += event.bytes
            self._rows_expected += (current.rows_expected or 0) if current else 0
        elif isinstance(event, Notice):
            self.last_notice = event.text
        elif isinstance(event, UnitFailed):
            self.running.pop(event.worker, None)
            self.last_error = event.message
            if event.retry_in_seconds is None:
                self.units_failed += 1
            else:
                self.retries += 1
                self.retry_at[event.unit] = now + event.retry_in_seconds
        elif isinstance(event, Verified):
            self.verified = event
        elif isinstance(event, (TableStaged, TableFinished)):
            self.tables = event.tables
        elif isinstance(event, DirectoryFilled):
            self._directories[event.directory] = event.bytes

    def give_up(self) -> None:
        """Forget the units in flight: the run stops, and their data counts no more."""
        self.running.clear()

    def sums(self) -> tuple[int, int]:
        """Return the rows and the bytes of finished units and running attempts."""
        running = self.running.values()
        rows = self.rows + sum(each.rows for each in running)
        return rows, self.bytes + sum(each.bytes for each in running)

    def figures(self, now: float) -> Figures:
        """Return how far the run is; once it is finished, what its manifest says."""
        before, totals = self.kept, self._finished
        seconds_left: float | None
        if totals is not None:
            rows, size, seconds = totals.rows, totals.bytes, totals.seconds
            fraction, seconds_left = 1.0, 0.0
            past = busy = max(seconds, 1e-3)
            rows_then, size_then = before.rows, before.bytes
        else:
            rows, size = self.sums()
            self._samples.append((now, rows, size))
            while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_SECONDS:
                self._samples.popleft()
            then, rows_then, size_then = self._samples[0]
            past, busy, seconds = max(now - then, 1e-3), now - self._started, now - self._began
            fraction = self._fraction()
            done = fraction - self._fraction_kept
            seconds_left = busy * (1 - fraction) / done if done > 0.005 else None
        return Figures(
            units_done=self.units_done,
            units=self.run.units,
            rows=rows,
            bytes=size,
            # A failed attempt takes back rows that were counted before.
            rows_per_second=max(0.0, (rows - rows_then) / past),
            bytes_per_second=max(0.0, (size - size_then) / past) if size or totals else None,
            fraction=fraction,
            seconds=seconds,
            seconds_left=seconds_left,
            mean_rows_per_second=(rows - before.rows) / max(busy, 1e-3),
            units_kept=before.units,
            rows_kept=before.rows,
            bytes_kept=before.bytes,
            directories=tuple(sorted(self._directories.items())),
            tables=self.tables,
        )

    def _fraction(self) -> float:
        """Finished units count with their estimate, so that a wrong one never passes 100 %."""
        if not self.run.units:
            return 0.0
        if self.units_done >= self.run.units:
            return 1.0
        expected = self.run.rows
        if expected:
            now = sum(min(each.rows, each.rows_expected or 0) for each in self.running.values())
            return min((self._rows_expected + now) / expected, 0.999)
        return self.units_done / self.run.units


FIRST_SECONDS, EVERY_SECONDS = 0.2, 1.0
"""Before the first record, which a run of a moment does not need, and between two."""

_PATIENCE_SECONDS = 5.0
"""How long the end of a run waits for a record that is being written to a storage that hangs."""

_LONGEST_ERROR = 1000

STOP_ASKED = "`unloader stop` was called: the work units in progress are stopped"


class LiveRun:
    """An active run: takes its events, shows their sums, and knows if it is to end."""

    def __init__(
        self, run_id: str, seats: Sequence[Seat], observe: Observer, asked: Callable[[], bool]
    ) -> None:
        self._run_id, self._seats = run_id, tuple(seats)
        self._observe, self._asked = observe, asked
        self.tally = Tally(time.monotonic())
        self.tally.add(PhaseStarted(phase="planning"), time.monotonic())
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._sequence = 0
        self._speeds: Speeds | None = None
        self._notices: list[str] = []
        self._has_failed = False
        self.resumable: bool | None = None
        """Whether a later process can read at the same snapshot; None = not known yet."""
        self.snapshot_kept_until = ""
        """ISO 8601; empty without a keeper."""
        self.stopped_by_others = False
        """The end was asked for by way of the storage."""
        self._wish_read = b""
        self.wishes: list[Wish] = []
        """The changes that are asked of the run, until it takes them."""
        self.parallelism: ParallelismStatus | None = None
        """How many workers work now; replaced as a whole by the code that decides."""
        self._storages: Sequence[RunStorage] = ()
        self._thread: threading.Thread | None = None

    def record_in(self, *storages: RunStorage) -> None:
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
            requests = [each.requests() for each in self._storages]
            if not self.stopped_by_others and any(each.stop for each in requests):
                self._notices.append(STOP_ASKED)
                self.stopped_by_others = True
            found = next((each.change.encode() for each in requests if each.change), b"")
            if found != self._wish_read:
                self._wish_read = found
                from unloader.status.model import Wish

                try:
                    self.wishes.append(decode(found, type=Wish))
                except (ValueError, RecursionError):
                    if found:
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
        # Imported here: a short run writes no record.
        from unloader.status.model import LiveStatus, Speeds, UnitCounts

        tally, at = self.tally, datetime.now(UTC)
        figures, running = tally.figures(now), len(tally.running)
        self._speeds = speeds = self._speeds or Speeds()
        speeds.add(now, figures.rows)
        # Without an estimate the figures count units, which may be of very different sizes.
        is_estimated = tally.run.rows is not None
        since = at - timedelta(seconds=now - tally.phase_started)
        return LiveStatus(
            run_id=self._run_id,
            sequence=self._sequence,
            updated=at.isoformat(timespec="milliseconds"),
            host=os.uname().nodename,
            boot_id=boot_id(),
            pid=os.getpid(),
            table=tally.run.table,
            phase=tally.phase,
            phase_since=since.isoformat(timespec="seconds"),
            units=UnitCounts(
                total=figures.units,
                done=figures.units_done,
                running=running,
                waiting=max(0, figures.units - figures.units_done - running - tally.units_failed),
                failed=tally.units_failed,
            ),
            tables=figures.tables,
            rows=figures.rows,
            bytes=figures.bytes,
            rows_expected=tally.run.rows,
            bytes_expected=figures.bytes_expected if is_estimated else None,
            rows_per_second=round(figures.rows_per_second, 1),
            mean_rows_per_second=round(figures.mean_rows_per_second, 1),
            speeds=speeds.values(),
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
    from unloader.status.model import WorkerStatus

    idle = WorkerStatus(worker=seat.worker, node=seat.node, cpus=seat.cpus)
    if running := tally.running.get(seat.worker):
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
    if not tally.retry_at:
        return idle
    wait = round(max(0.0, min(tally.retry_at.values()) - now), 1)
    return replace(idle, waits_for="retry", retry_in_seconds=wait)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _shown(text: str) -> str:
    return redact(text)[:_LONGEST_ERROR]
