"""What the source gives when nobody writes: fetched by workers on their seats and thrown away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.ceilings.model import SourceLevel
from unloader.engine.local import LocalExecutor
from unloader.model import OutputTask, UnitTask
from unloader.preflight.tasks import ConnectTask, Fetched, FetchTask
from unloader.preflight.together import measure_together
from unloader.resolve.preparation import Prepared
from writers.model import Compression, OutputSpec

_BEGIN_SECONDS = 120.0
"""What the first rows of a statement may take beyond the time for fetching (guess)."""


class SourceFigures(Struct, frozen=True, kw_only=True):
    """The levels, and what their connections showed."""

    levels: tuple[SourceLevel, ...]
    network_round_trip_seconds: float | None
    one_connection: float | None
    """The most bytes a second that one connection received."""
    all_connections: float | None
    read_again: bool
    """Units were read more than once, as there were not enough of them."""


def levels_up_to(workers: int) -> tuple[int, ...]:
    """Return 1, 2, 4 and so on, and the number itself."""
    found = [1]
    while found[-1] * 2 <= workers:
        found.append(found[-1] * 2)
    return tuple(dict.fromkeys((*found, workers)))


def measure_source(
    ready: Prepared,
    executor: LocalExecutor,
    levels: Sequence[int],
    *,
    seconds: float,
    stop: Callable[[], bool],
) -> SourceFigures:
    """Return what so many workers fetch of the run's units.

    Each level begins with units that those before it have not reached, as far as there are any:
    what is read twice may come out of a cache. All connect before anybody fetches.

    Args:
        ready: The run, prepared; its snapshot is what is read.
        executor: Has a seat for each worker of the highest level.
        levels: Parallelisms, ascending.
        seconds: Of fetching, for each level.
        stop: Asked several times a second.

    Raises:
        UnloaderError: The source failed.
        Interrupted: `stop` returned True.
    """
    units = tuple(sorted(ready.plan.units, key=lambda unit: unit.id))
    answers: list[tuple[int, list[Fetched]]] = []
    first = 0
    for level in levels:
        tasks = list(_tasks(ready, units, level, first, seconds))
        patience = seconds + _BEGIN_SECONDS
        opening = [ConnectTask(extract=ready.extract)] * level
        measure_together(executor, opening, patience_seconds=_BEGIN_SECONDS, stop=stop)
        given = measure_together(executor, tasks, patience_seconds=patience, stop=stop)
        answers.append((level, [cast(Fetched, each) for each in given]))
        first += level
    every = [each for _, found in answers for each in found]
    trips = [t for each in every if (t := each.network_round_trip_seconds) is not None]
    rates = [rate for each in every if (rate := _received_rate(each)) is not None]
    found = tuple(_level(level, workers) for level, workers in answers)
    totals = [t for each in found if (t := each.network_bytes_per_second) is not None]
    return SourceFigures(
        levels=found,
        network_round_trip_seconds=min(trips, default=None),
        one_connection=max(rates, default=None),
        # Two that were read one after the other are slower together than the faster of them.
        all_connections=max((*totals, *rates)) if totals else None,
        read_again=any(each.wraps for each in every) or sum(levels) > len(units),
    )


def _tasks(
    ready: Prepared, units: Sequence[WorkUnit], level: int, first: int, seconds: float
) -> Iterator[FetchTask]:
    """Yield the task of each worker: every n-th unit, from one on that nobody else begins with."""
    spec = ready.request.output.spec("", ready.format, Compression())
    spec = replace(spec, stream=os.devnull)
    for worker in range(level):
        at = (first + worker) % len(units)
        turned = (*units[at:], *units[:at])
        mine = turned[:: min(level, len(turned))]
        yield FetchTask(units=tuple(_dropped(ready, unit, spec) for unit in mine), seconds=seconds)


def _dropped(ready: Prepared, unit: WorkUnit, spec: OutputSpec) -> UnitTask:
    """Return the task that a worker gets of a run with `--to null:rows`."""
    return UnitTask(
        unit=unit,
        attempt=1,
        extract=ready.extract,
        outputs=(OutputTask(spec=spec, stem=unit.id, drops="rows"),),
        fetch_bytes=ready.request.fetch_bytes,
    )


def _received_rate(worker: Fetched) -> float | None:
    took = worker.ended - worker.began
    if worker.network_bytes is None or took <= 0:
        return None
    return round(worker.network_bytes / took)


def _level(level: int, workers: Sequence[Fetched]) -> SourceLevel:
    took = max(each.ended for each in workers) - min(each.began for each in workers)
    took = max(took, 1e-6)
    rows, size = sum(each.rows for each in workers), sum(each.bytes for each in workers)
    received = [each.network_bytes for each in workers]
    known = [each for each in received if each is not None]
    return SourceLevel(
        parallelism=level,
        rows=rows,
        bytes=size,
        seconds=round(took, 3),
        rows_per_second=round(rows / took, 1),
        bytes_per_second=round(size / took),
        cpu_seconds=round(sum(each.cpu_seconds for each in workers), 3),
        network_bytes_per_second=round(sum(known) / took) if len(known) == len(received) else None,
    )
