"""Follows one run by its events, and makes a measurement of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct, field

from unloader.events import (
    Event,
    Observer,
    PhaseStarted,
    RunStarted,
    UnitAdvanced,
    UnitFailed,
    UnitFinished,
    UnitStarted,
)
from unloader.model import UnitResult
from unloader.sweep.measuring.sampler import Sampler
from unloader.sweep.model import Measurement, UnitTime
from unloader.sweep.running.stages import (
    costs_of,
    queueing_of,
    row_bytes_of,
    waits_of,
)

_LEAST_SECONDS = 1e-6


class Watch(Struct, kw_only=True):
    """What is known of a run while it goes on; it observes it, and ends it when time is over."""

    sampler: Sampler
    shown: Observer
    """Gets the events that a user of the sweep should see."""
    seconds: float | None
    """Longest time; None is any."""
    asked_to_stop: Callable[[], bool]
    """The user's own wish."""
    clock: Callable[[], float] = time.monotonic
    began: float = 0.0
    interrupted: bool = False
    """The user has ended it."""
    timed_out: bool = False
    estimated_rows: int | None = None
    """Of all that the run was to read, by the source."""
    _unloading: float | None = None
    _ended: float | None = None
    _failed: int = 0
    _results: list[UnitResult] = field(default_factory=list)
    _timeline: list[UnitTime] = field(default_factory=list)
    _started: dict[str, float] = field(default_factory=dict)
    _under_way: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Rows and bytes of units that are not finished."""

    def __post_init__(self) -> None:
        """Begin."""
        self.began = self.clock()

    def __call__(self, event: Event) -> None:
        """Take an event of the run."""
        now = self.clock()
        if isinstance(event, PhaseStarted):
            self._phase(now)
        elif isinstance(event, RunStarted):
            self.estimated_rows = event.rows
        elif isinstance(event, UnitStarted):
            self._begin(now)
            self._started[event.unit] = now
        elif isinstance(event, UnitAdvanced):
            self._under_way[event.unit] = (event.rows, event.bytes)
        elif isinstance(event, UnitFailed):
            self._failed += 1
            self._under_way.pop(event.unit, None)
        elif isinstance(event, UnitFinished):
            self._finished(event, now)
        self.shown(event)

    def stop(self) -> bool:
        """Return whether the run is to end: the user says so, or its time is over."""
        if self.asked_to_stop():
            self.interrupted = True
        elif self._unloading is not None and self._ended is None and self.seconds is not None:
            self.timed_out = self.clock() - self._unloading >= self.seconds
            if self.timed_out:
                self._end(self.clock())
        return self.interrupted or self.timed_out

    def close(self) -> None:
        """End the watching; may be called again."""
        self._end(self.clock())

    def measurement(self, number: int) -> Measurement | None:
        """Return what was measured; None if no row came.

        Args:
            number: Of the measurement in its sweep.
        """
        self.close()
        if self._unloading is None or self._ended is None:
            return None
        cut = list(self._under_way.values()) if self.timed_out else []
        rows = sum(each.rows for each in self._results) + sum(rows for rows, _ in cut)
        if not rows:
            return None
        size = sum(f.bytes for each in self._results for f in each.files)
        size += sum(written for _, written in cut)
        seconds = max(self._ended - self._unloading, _LEAST_SECONDS)
        return Measurement(
            number=number,
            seconds=seconds,
            whole_seconds=self.clock() - self.began,
            rows=rows,
            bytes=size,
            complete=not self.timed_out,
            units=len(self._results),
            failed_attempts=self._failed,
            costs=costs_of(self._results),
            queueing=queueing_of(self._results),
            waits=waits_of(self._results),
            machine=self.sampler.load(),
            peak_worker_bytes=max((r.peak_rss_bytes for r in self._results), default=None),
            row_bytes=row_bytes_of(self._results),
            moments=self.sampler.moments(),
            timeline=tuple(self._timeline),
            rows_per_second=rows / seconds,
            bytes_per_second=size / seconds,
        )

    def _phase(self, now: float) -> None:
        if self._unloading is not None:
            self._end(now)

    def _begin(self, now: float) -> None:
        # Not with the phase: the first worker loads its libraries yet, whatever the table is.
        if self._unloading is None:
            self._unloading = now
            self.sampler.start()

    def _end(self, now: float) -> None:
        if self._unloading is not None and self._ended is None:
            self._ended = now
            self.sampler.stop()

    def _finished(self, event: UnitFinished, now: float) -> None:
        self._under_way.pop(event.unit, None)
        if event.result is not None:
            self._results.append(event.result)
        first = self._unloading or now
        self._timeline.append(
            UnitTime(
                worker=event.worker,
                unit=event.unit,
                began_seconds=self._started.get(event.unit, now) - first,
                seconds=event.seconds,
                rows=event.rows,
                bytes=event.bytes,
            )
        )
