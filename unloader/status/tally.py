"""The progress of a run and its speed, worked out from its events; the clock is the caller's."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.events import (
    DirectoryFilled,
    Event,
    Notice,
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

MOST = 60
"""As many as a line of a terminal can show beside their name."""


class Speeds(Struct):
    """Rows per second since a run began, one mean after the other."""

    _samples: list[tuple[float, int]] = field(default_factory=list)
    """Seconds of any clock that only goes forward, and the rows until then."""
    _step: float = 0.0
    """Seconds between two samples that are kept; 0 keeps all."""

    def add(self, now: float, rows: int) -> None:
        if self._samples and now - self._samples[-1][0] < self._step:
            return
        self._samples.append((now, rows))
        if len(self._samples) > MOST + 1:
            # The first and the last one stay, as their number is even then.
            # A little less than twice the former step, as looks come at whole seconds.
            self._step = 1.9 * (now - self._samples[0][0]) / MOST
            self._samples = [*self._samples[:-1:2], self._samples[-1]]

    def values(self) -> tuple[float, ...]:
        """Return the means, the oldest first; a failed attempt takes rows back, which is 0."""
        return tuple(
            round(max(0.0, (now_rows - rows) / max(now - then, 1e-3)), 1)
            for (then, rows), (now, now_rows) in pairwise(self._samples)
        )


RATE_SECONDS = 30.0
"""Rates are averages over this much of the past: a shorter span jumps, a longer one hides a
stall."""


_SAYS_ENOUGH = 0.01
"""Part of a run from which on its bytes are an estimate of all."""


class Running(Struct):
    """A unit in a worker's hands."""

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
        """The expected bytes of the whole run, from the bytes written so far; None until they
        suffice for an estimate."""
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
        self._units_done = self._rows = self._bytes = self._rows_expected = 0
        self._samples: deque[tuple[float, int, int]] = deque([(now, 0, 0)])
        self.running.clear()
        self.retry_at.clear()
        self.retries = self.given_up = 0
        self.last_error = self.last_notice = ""
        self._directories: dict[str, int] = {}
        self._fraction_kept = 0.0
        self._tables: TableCounts | None = None
        if self.run.tables > 1:
            self._tables = TableCounts(total=self.run.tables, largest_open=self.run.largest_table)
        self.kept = UnitsKept(units=0, rows=0, bytes=0)
        """The work of an earlier process of the run: no rate counts it."""

    def add(self, event: Event, now: float) -> None:
        if isinstance(event, RunStarted):
            self.run, self.phase, self.phase_started = event, "unloading", now
            self._begin(now)
        elif isinstance(event, UnitsKept):
            self._units_done, self._rows, self._bytes = event.units, event.rows, event.bytes
            self._rows_expected, self.kept = event.rows, event
            if self._tables is not None:
                self._tables = replace(self._tables, done=event.tables)
            self._started = now
            self._samples = deque([(now, event.rows, event.bytes)])
            self._fraction_kept = self._fraction()
        elif isinstance(event, PhaseStarted):
            self.phase, self.phase_started, self.verified = event.phase, now, None
            if event.phase == "connecting":
                self._began = now
        elif isinstance(event, RunFinished):
            self._finished = event
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
            self._units_done += 1
            self._rows += event.rows
            self._bytes += event.bytes
            self._rows_expected += (current.rows_expected or 0) if current else 0
        elif isinstance(event, Notice):
            self.last_notice = event.text
        elif isinstance(event, UnitFailed):
            self.running.pop(event.worker, None)
            self.last_error = event.message
            if event.retry_in_seconds is None:
                self.given_up += 1
            else:
                self.retries += 1
                self.retry_at[event.unit] = now + event.retry_in_seconds
        elif isinstance(event, Verified):
            self.verified = event
        elif isinstance(event, (TableStaged, TableFinished)):
            self._tables = event.tables
        elif isinstance(event, DirectoryFilled):
            self._directories[event.directory] = event.bytes

    def give_up(self) -> None:
        """Forget the units in flight: the run stops, and their data counts no more."""
        self.running.clear()

    def sums(self) -> tuple[int, int]:
        """Return the rows and the bytes of finished units and running attempts."""
        running = self.running.values()
        rows = self._rows + sum(each.rows for each in running)
        return rows, self._bytes + sum(each.bytes for each in running)

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
            units_done=self._units_done,
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
            tables=self._tables,
        )

    def _fraction(self) -> float:
        """Finished units count with their estimate, so that a wrong one never passes 100 %."""
        if not self.run.units:
            return 0.0
        if self._units_done >= self.run.units:
            return 1.0
        expected = self.run.rows
        if expected:
            now = sum(min(each.rows, each.rows_expected or 0) for each in self.running.values())
            return min((self._rows_expected + now) / expected, 0.999)
        return self._units_done / self.run.units
