"""From the state of a run to the record of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from numa.model import Seat
from unloader.redaction import redact
from unloader.status.model import (
    LiveStatus,
    ParallelismStatus,
    UnitCounts,
    WorkerStatus,
)
from unloader.status.speeds import Speeds
from unloader.status.tally import Figures, Running, Tally
from unloader.storage.machine import boot_id, host_name

_LONGEST_ERROR = 1000


class Process(Struct, frozen=True, kw_only=True):
    """What the events of a run do not tell."""

    run_id: str
    seats: tuple[Seat, ...]
    """Of the workers."""
    sequence: int
    stopping: bool = False
    resumable: bool | None = None
    snapshot_kept_until: str = ""
    parallelism: ParallelismStatus | None = None
    error: BaseException | None = None
    """What ended the run."""
    speeds: Speeds | None = None
    """Gets how far the run is at this moment."""


def snapshot_of(tally: Tally, process: Process, now: float) -> LiveStatus:
    """Return the record of a moment.

    Args:
        tally: What the events of the run add up to.
        process: The rest.
        now: By the clock of the tally.
    """
    figures, at = tally.figures(now), datetime.now(UTC)
    error = process.error
    if process.speeds is not None:
        process.speeds.add(now, figures.rows)
    return LiveStatus(
        run_id=process.run_id,
        sequence=process.sequence,
        updated=at.isoformat(timespec="milliseconds"),
        host=host_name(),
        boot_id=boot_id(),
        pid=os.getpid(),
        table=tally.run.table,
        phase=tally.phase,
        phase_since=_text(at - timedelta(seconds=now - tally.phase_started)),
        units=_counts(tally, figures),
        tables=figures.tables,
        rows=figures.rows,
        bytes=figures.bytes,
        rows_expected=tally.run.rows,
        bytes_expected=figures.bytes_expected,
        rows_per_second=round(figures.rows_per_second, 1),
        mean_rows_per_second=round(figures.mean_rows_per_second, 1),
        speeds=process.speeds.values() if process.speeds is not None else (),
        bytes_per_second=_rounded(figures.bytes_per_second),
        fraction=round(figures.fraction, 4),
        seconds=round(figures.seconds, 1),
        seconds_left=_rounded(figures.seconds_left),
        workers=tuple(_workers(tally, process.seats[: tally.run.workers], now)),
        retries=tally.retries,
        last_error=_shown(str(error) if error is not None else tally.last_error),
        last_notice=_shown(tally.last_notice),
        parallelism=process.parallelism,
        stopping=process.stopping,
        resumable=process.resumable,
        snapshot_kept_until=process.snapshot_kept_until,
        ended="" if error is None else type(error).__name__,
    )


def _counts(tally: Tally, figures: Figures) -> UnitCounts:
    running = len(tally.running)
    return UnitCounts(
        total=figures.units,
        done=figures.units_done,
        running=running,
        waiting=max(0, figures.units - figures.units_done - running - tally.given_up),
        failed=tally.given_up,
    )


def _workers(tally: Tally, seats: Sequence[Seat], now: float) -> Iterator[WorkerStatus]:
    retry_in = min(tally.retry_at.values(), default=None)
    for seat in seats:
        running = tally.running.get(seat.worker)
        if running is not None:
            yield _busy(seat, running, now)
        else:
            yield WorkerStatus(
                worker=seat.worker,
                node=seat.node,
                cpus=seat.cpus,
                waits_for="nothing" if retry_in is None else "retry",
                retry_in_seconds=None if retry_in is None else round(max(0.0, retry_in - now), 1),
            )


def _busy(seat: Seat, running: Running, now: float) -> WorkerStatus:
    return WorkerStatus(
        worker=seat.worker,
        node=seat.node,
        cpus=seat.cpus,
        unit=running.unit,
        partition=running.partition,
        attempt=running.attempt,
        rows=running.rows,
        bytes=running.bytes,
        seconds=round(now - running.started, 1),
        waits_for=running.waits_for,
        waits_detail=_shown(running.waiting_for),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _shown(text: str) -> str:
    """Return a message without secrets, and without its end where it is long."""
    return redact(text)[:_LONGEST_ERROR]
