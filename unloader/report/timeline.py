"""The bars of a timeline: what each worker did when, in as many bars as a page can show."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

from unloader.manifest.model import FailedAttemptRecord, UnitRecord
from unloader.report.model import Bar

MOST_BARS = 1500
"""A drawing of so many opens at once; one of 20,000 takes seconds."""


def bars_of(
    units: Iterable[UnitRecord], failed: Sequence[FailedAttemptRecord], most: int = MOST_BARS
) -> tuple[tuple[Bar, ...], int]:
    """Return the bars by worker and time, and how many units one of them stands for at most.

    Units whose worker or begin is not known are left out. Failed attempts have bars of their own
    always. Where there are too many units, several that a worker did in a row share a bar.
    """
    by_worker: dict[int, list[tuple[float, UnitRecord]]] = defaultdict(list)
    for unit in units:
        if unit.worker is not None and unit.started_s is not None:
            by_worker[unit.worker].append((unit.started_s, unit))
    for done in by_worker.values():
        done.sort(key=lambda each: each[0])
    together = 1
    while sum(math.ceil(len(done) / together) for done in by_worker.values()) > most:
        if all(len(done) <= together for done in by_worker.values()):
            break
        together *= 2
    shared = (
        _shared(worker, done[at : at + together])
        for worker, done in by_worker.items()
        for at in range(0, len(done), together)
    )
    bars = chain(shared, map(failed_bar, failed[:most]))
    return tuple(sorted(bars, key=lambda bar: (bar.worker, bar.started_s))), together


def failed_bar(failed: FailedAttemptRecord) -> Bar:
    """Return the bar of a failed attempt."""
    return Bar(
        worker=failed.worker,
        unit=failed.unit,
        last_unit=failed.unit,
        units=1,
        partition="",
        started_s=failed.started_s,
        seconds=failed.seconds,
        rows=0,
        attempt=failed.attempt,
        outcome="failed",
        message=failed.message,
    )


def _shared(worker: int, done: Sequence[tuple[float, UnitRecord]]) -> Bar:
    (began, first), (last_began, last) = done[0], done[-1]
    attempt = max(unit.attempts for _, unit in done)
    return Bar(
        worker=worker,
        unit=first.id,
        last_unit=last.id,
        units=len(done),
        partition=(first.partition or "") if len(done) == 1 else "",
        started_s=began,
        seconds=round(last_began + last.seconds - began, 4),
        rows=sum(unit.rows for _, unit in done),
        attempt=attempt,
        outcome="done" if attempt == 1 else "done in a retry",
    )
