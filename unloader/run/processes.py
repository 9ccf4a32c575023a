"""The processes of a run, the first of them started before there is a plan.

A worker needs about as long to load its driver as the parent needs to plan, so a few start at once.
That costs nothing in placement: seats for fewer workers are the first of those for more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numa.pool import Pool
from partition_planner.model import Plan
from unloader.model import Preload, Request
from unloader.placement.seating import automatic_parallelism, machine, seat_workers

ENTRY = "unloader.worker.worker:work"

EARLY_WORKERS = 2
"""Most tables have more units than that; a worker too many would be ended again unused."""


@contextmanager
def crew(job: Request, plan: Plan | None = None) -> Iterator[Pool]:
    """Open a pool with a seat for each worker the job may want, and start the first few.

    All processes are gone at the end of the context.

    Args:
        job: What was asked.
        plan: One made earlier, which says how many workers it is for.

    Raises:
        ConfigError: The seats cannot be had as asked.
        PlacementError: `--numa-nodes` names a node that is not there.
        PoolError: A process cannot be started.
    """
    topology = machine()
    asked = job.limits.parallelism if plan is None else plan.limits.parallelism
    workers = asked or automatic_parallelism(topology, job.seats)
    seating = seat_workers(topology, workers, job.seats)
    with Pool(seating.seats, ENTRY, memory_policy=seating.memory_policy) as pool:
        for seat in seating.seats[:EARLY_WORKERS]:
            pool.start(seat.worker)
            pool.assign(seat.worker, Preload(source_kind=job.source.kind))
        yield pool
