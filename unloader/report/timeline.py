"""The bars of a timeline: what each worker did when, in as many bars as a page can show."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from unloader.report.model import Bar

MOST_BARS = 1500
"""A drawing of so many opens at once; one of 20,000 takes seconds."""


def bars_of(
    units: Iterable[Bar], failed: Sequence[Bar] = (), most: int = MOST_BARS
) -> tuple[tuple[Bar, ...], int]:
    """Return the bars by worker and time, and how many units one of them stands for at most.

    Failed attempts always have separate bars. Where there are too many units, several that a
    worker did in a row share a bar.

    Args:
        units: A bar for each unit.
        failed: A bar for each failed attempt.
        most: How many of each are shown.
    """
    by_worker: dict[int, list[Bar]] = defaultdict(list)
    for unit in units:
        by_worker[unit.worker].append(unit)
    for done in by_worker.values():
        done.sort(key=lambda bar: bar.started_s)
    together = 1
    while sum(math.ceil(len(done) / together) for done in by_worker.values()) > most:
        if all(len(done) <= together for done in by_worker.values()):
            break
        together *= 2
    bars = [
        _shared(done[at : at + together])
        for done in by_worker.values()
        for at in range(0, len(done), together)
    ]
    bars += failed[:most]
    return tuple(sorted(bars, key=lambda bar: (bar.worker, bar.started_s))), together


def _shared(done: Sequence[Bar]) -> Bar:
    first, last = done[0], done[-1]
    attempt = max(bar.attempt for bar in done)
    return Bar(
        worker=first.worker,
        unit=first.unit,
        last_unit=last.unit,
        units=len(done),
        partition=first.partition if len(done) == 1 else "",
        started_s=first.started_s,
        seconds=round(last.started_s + last.seconds - first.started_s, 4),
        rows=sum(bar.rows for bar in done),
        attempt=attempt,
        outcome="done" if attempt == 1 else "done in a retry",
    )
