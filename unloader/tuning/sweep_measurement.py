"""Follows one run of a sweep by its events, and makes a measurement of it.

Finished units show their stages: the CPU, the queues, and the waits. A stage that waits
is not yet the limit: the next one waits for something outside, has work to do, or is ready and gets
no CPU. Each wait is divided among these as the stage that is waited for has spent its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct, field, structs

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
from unloader.model import Stages, UnitResult
from unloader.tuning.machine_load import Sampler
from unloader.tuning.sweep_document import Measurement, StageCosts, UnitTime
from writers import cpu_delay

_LEAST_SECONDS = 1e-6


class Watch(Struct, kw_only=True):
    """A run in progress: it observes the events of the run, and ends it after its time."""

    sampler: Sampler
    shown: Observer
    """Gets the events that a user of the sweep should see."""
    seconds: float | None
    """Longest time; None is any."""
    asked_to_stop: Callable[[], bool]
    """The user's own wish."""
    began: float = field(default_factory=time.monotonic)
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

    def __call__(self, event: Event) -> None:
        """Take an event of the run."""
        now = time.monotonic()
        if isinstance(event, PhaseStarted):
            self.close()
        elif isinstance(event, RunStarted):
            self.estimated_rows = event.rows
        elif isinstance(event, UnitStarted):
            # Not with the phase: the first worker still loads its libraries.
            if self._unloading is None:
                self._unloading = now
                self.sampler.start()
            self._started[event.unit] = now
        elif isinstance(event, UnitAdvanced):
            self._under_way[event.unit] = (event.rows, event.bytes)
        elif isinstance(event, UnitFailed):
            self._failed += 1
            self._under_way.pop(event.unit, None)
        elif isinstance(event, UnitFinished):
            self._under_way.pop(event.unit, None)
            if event.result is not None:
                self._results.append(event.result)
            self._timeline.append(
                UnitTime(
                    worker=event.worker,
                    unit=event.unit,
                    began_seconds=self._started.get(event.unit, now) - (self._unloading or now),
                    seconds=event.seconds,
                    rows=event.rows,
                    bytes=event.bytes,
                )
            )
        self.shown(event)

    def stop(self) -> bool:
        """Return whether the run must end: the user stops it, or its time is over."""
        if self.asked_to_stop():
            return True
        if self._unloading is not None and self._ended is None and self.seconds is not None:
            self.timed_out = time.monotonic() - self._unloading >= self.seconds
            if self.timed_out:
                self.close()
        return self.timed_out

    def close(self) -> None:
        """End the watching; may be called again."""
        if self._unloading is not None and self._ended is None:
            self._ended = time.monotonic()
            self.sampler.stop()

    def measurement(self, number: int) -> Measurement | None:
        """Return the measurement with its number in the sweep; None if no row came."""
        self.close()
        results = self._results
        cut = list(self._under_way.values()) if self.timed_out else []
        rows = sum(each.rows for each in results) + sum(rows for rows, _ in cut)
        if self._unloading is None or self._ended is None or not rows:
            return None
        size = sum(f.bytes for each in results for f in each.files)
        size += sum(written for _, written in cut)
        seconds = max(self._ended - self._unloading, _LEAST_SECONDS)
        loads = [each.stages.load for each in results if each.stages.load is not None]
        queued = [each.longest_blocked_s for each in loads] if len(loads) == len(results) else []
        texts = [each.stages.uncompressed_bytes or 0 for each in results]
        finished = sum(each.rows for each in results)
        return Measurement(
            number=number,
            seconds=seconds,
            whole_seconds=time.monotonic() - self.began,
            rows=rows,
            bytes=size,
            complete=not self.timed_out,
            units=len(results),
            failed_attempts=self._failed,
            costs=_costs(results),
            load=structs.replace(
                self.sampler.load(), queued=max(queued, default=None), **waits_of(results)
            ),
            peak_worker_bytes=max((r.peak_rss_bytes for r in results), default=None),
            row_bytes=sum(texts) / finished if finished and all(texts) else None,
            moments=self.sampler.moments(),
            timeline=tuple(self._timeline),
            rows_per_second=rows / seconds,
            bytes_per_second=size / seconds,
        )


def _costs(results: Sequence[UnitResult]) -> StageCosts:
    """Return the CPU seconds of the stages per million rows."""
    loads = [each.stages.load for each in results if each.stages.load is not None]
    million = sum(each.rows for each in results) / 1e6
    if not million or len(loads) != len(results):
        return StageCosts()
    # A text format knows its size before it is compressed; Parquet compresses as it encodes.
    is_stage = all(each.stages.uncompressed_bytes is not None for each in results)
    fetch = sum(each.fetch_cpu_s for each in loads)
    encode = sum(each.encode_cpu_s for each in loads)
    compress = sum(each.stages.compress_cpu_s for each in results)
    write = sum(each.write_cpu_s for each in loads)
    total = sum(each.process_cpu_s for each in loads)
    return StageCosts(
        fetch=fetch / million,
        encode=encode / million,
        compress=compress / million if is_stage else None,
        write=write / million,
        rest=max(0.0, total - fetch - encode - compress - write) / million,
        total=total / million,
    )


def waits_of(results: Sequence[UnitResult]) -> dict[str, float]:
    """Return the shares of the workers' time that passed in waiting, by cause.

    source: for rows, while nothing of the worker had to run for them; output: for the destination
    of the files, in writing or syncing; delay: for a CPU, with a thread ready to run. Empty if a
    unit has no such figures.
    """
    seconds = sum(each.seconds for each in results)
    if not seconds or any(each.stages.load is None for each in results):
        return {}
    causes = ("source", "output", "delay") if cpu_delay.is_known() else ("source", "output")
    columns = zip(*(_waits(each.stages) for each in results), strict=True)
    return {
        cause: min(1.0, sum(column) / seconds)
        for cause, column in zip(causes, columns, strict=False)
    }


def _waits(stages: Stages) -> tuple[float, float, float]:
    """Return the seconds that one unit waited for the source, for its output, and for a CPU."""
    load = stages.load
    assert load is not None
    known = load.fetch_cpu_s + load.encode_cpu_s + stages.compress_cpu_s + load.write_cpu_s
    # Threads of a driver work for the fetch.
    fetching = load.fetch_cpu_s + max(0.0, load.process_cpu_s - known)
    source, for_fetch = _divided(load.starved_s, stages.fetch_s, fetching, load.fetch_delay_s)
    # Without a compressing thread none is blocked, and writing alone is waited for.
    compressing = stages.compress_s + load.compress_blocked_s
    by_writing = load.compress_blocked_s / compressing if compressing else 1.0
    blocked = load.encode_blocked_s
    output, for_write = _divided(
        blocked * by_writing + load.closing_s,
        stages.write_s,
        load.write_cpu_s,
        load.write_delay_s,
    )
    _, for_compress = _divided(
        blocked * (1 - by_writing),
        stages.compress_s,
        stages.compress_cpu_s,
        load.compress_delay_s,
    )
    return source, output, for_fetch + for_write + for_compress + load.encode_delay_s


def _divided(waited: float, wall: float, busy: float, delayed: float) -> tuple[float, float]:
    """Divide a wait for a stage into a wait for something outside and a wait for a CPU.

    Args:
        waited: Seconds.
        wall: Of the stage.
        busy: CPU seconds of the same.
        delayed: Seconds in which it was ready and had no CPU.
    """
    outside = max(0.0, wall - busy - delayed)
    whole = outside + busy + delayed
    return (waited * outside / whole, waited * delayed / whole) if whole else (0.0, 0.0)
