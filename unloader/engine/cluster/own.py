"""A cluster of our own on this machine, for a try: a scheduler and some Dask workers.

They are tasks of `numa.pool`, so they end with the run, and are killed with it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numa.model import Finished, Lost, Message, Raised, Seat
from numa.pool import Pool
from unloader.errors import ConfigError

ENTRY = "unloader.engine.cluster.own:serve"

_START_SECONDS = 60.0


@contextmanager
def own_cluster(workers: int) -> Iterator[str]:
    """Start a scheduler and so many Dask workers of one thread; return the scheduler's address.

    Raises:
        ConfigError: Dask is missing, or one of them does not start.
    """
    seats = [Seat(worker=n, node=0, cpus=(), memory_node=None) for n in range(workers + 1)]
    with (
        tempfile.TemporaryDirectory(prefix="unloader-dask-") as scratch,
        Pool(seats, ENTRY) as pool,
    ):
        for seat in seats:
            pool.start(seat.worker)
        pool.assign(0, ("scheduler", "", scratch))
        (address,) = _reported(pool, 1)
        for seat in seats[1:]:
            pool.assign(seat.worker, ("worker", address, scratch))
        _reported(pool, workers)
        yield address


def _reported(pool: Pool, count: int) -> list[str]:
    """Return what so many processes have reported: each is up then."""
    found: list[str] = []
    until = time.monotonic() + _START_SECONDS
    while len(found) < count:
        for event in pool.wait(max(0.0, until - time.monotonic())):
            if isinstance(event, Message):
                found.append(str(event.payload))
            elif isinstance(event, Finished | Raised | Lost):
                detail = event.message if isinstance(event, Raised) else "it has ended"
                raise ConfigError(
                    f"a Dask process of --cluster local cannot be started: {detail}",
                    "install Dask with: pip install 'unloader[dask]'",
                )
        if time.monotonic() >= until:
            raise ConfigError(
                f"the Dask processes of --cluster local did not start within {_START_SECONDS:g} s",
                "try again with fewer processes, or check what keeps the machine busy",
            )
    return found


def serve(task: tuple[str, str, str], report: Callable[[object], None]) -> None:
    """Be a scheduler or a worker until the process is ended; report the address once it is up."""
    kind, address, scratch = task
    asyncio.run(_scheduler(report) if kind == "scheduler" else _worker(address, scratch, report))


async def _scheduler(report: Callable[[object], None]) -> None:
    from distributed import Scheduler

    async with Scheduler(
        host="127.0.0.1", port=0, dashboard=False, dashboard_address=None
    ) as scheduler:
        report(scheduler.address)
        await scheduler.finished()


async def _worker(address: str, scratch: str, report: Callable[[object], None]) -> None:
    from distributed import Worker

    options: dict[str, Any] = {"nthreads": 1, "memory_limit": 0, "local_directory": scratch}
    async with Worker(address, host="127.0.0.1", dashboard=False, **options) as worker:
        report(worker.address)
        await worker.finished()
