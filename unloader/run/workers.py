"""The workers of a run, the first of them started before there is a plan.

A worker needs about as long to load its driver as the parent needs to plan, so a few start at once.
That costs nothing in placement: seats for fewer workers are the first of those for more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numa.model import ProcessLimits
from unloader.engine.local import LocalExecutor
from unloader.model import Preload, Request
from unloader.placement.seating import SeatPlan

ENTRY = "unloader.worker.process:work"

EARLY_WORKERS = 2
"""Most tables have more units than that; a worker too many would be ended again unused."""

_START_SECONDS = 60.0
"""A worker that is not up yet has so long at least, whatever --stall-timeout is: a busy machine
takes seconds to start one, and an attempt that was lost that way never was one."""


@contextmanager
def early_workers(request: Request, seats: SeatPlan) -> Iterator[LocalExecutor]:
    """Open an executor with a seat for each worker the request may want, and start the first few.

    All processes are gone at the end of the context.

    Args:
        request: What was asked for.
        seats: Its seats, from `unloader.placement.seating.seat_request`.

    Raises:
        PoolError: A process cannot be started.
    """
    stall = request.retry.stall_seconds
    limits = ProcessLimits(
        start_seconds=max(stall, _START_SECONDS) if stall else 0.0,
        memory_bytes=request.worker_memory_bytes,
    )
    warm_up = Preload(source_kind=request.source.kind)
    looks = request.seats.numa != "off"
    with LocalExecutor(
        seats.first(seats.parallelism), ENTRY, limits, warm_up=warm_up, looks=looks
    ) as executor:
        executor.start_early(EARLY_WORKERS)
        yield executor
