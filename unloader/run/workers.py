"""The workers of a run.

Loading a driver takes about as long as planning. So the fork servers of all seats load what workers
need while the parent plans, and a worker is forked when its number is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numa.model import ProcessLimits
from unloader.engine.executor import Executor, LocalExecutor
from unloader.errors import UsageError
from unloader.lakehouse.lake_formats import lake_kind
from unloader.model import Preload, Request
from unloader.placement.seating import SeatPlan, seat_request
from unloader.redaction import holds_sql_password
from unloader.storage.place_names import destination_kind, is_kept
from writers.objects.location import is_location
from writers.registry import name_of

ENTRY = "unloader.worker.process:work"
"""The function that does the tasks of a worker."""

_START_SECONDS = 60.0
"""Least time for the start of a worker, independent of --stall-timeout. A busy machine takes
seconds to start a worker, and no attempt may be lost that way."""


@contextmanager
def workers_for(
    request: Request, parallelism: int | None = None, *, stop: Callable[[], bool]
) -> Iterator[tuple[SeatPlan, Executor]]:
    """Open an executor with a seat for each worker the request may want, here or in its cluster.

    It is yielded with the plan of these seats. All processes are gone at the end of the context.

    Args:
        parallelism: The parallelism of an earlier plan; None takes the request's.

    Raises:
        ConfigError: As `seat_request`, or as `unloader.engine.cluster.opening.open_cluster`.
        ConnectFailed: The cluster cannot be reached.
        Interrupted: `stop` returned True while a cluster was opened.
        UsageError: The workers do not suit the request.
    """
    stall, outputs = request.retry.stall_seconds, [each.output for each in request.of_outputs()]
    limits = ProcessLimits(
        start_seconds=max(stall, _START_SECONDS) if stall else 0.0,
        memory_bytes=request.worker_memory_bytes,
    )
    places = (place for each in outputs for place in each.destinations if is_location(place))
    warm_up = Preload(
        source_kind=request.source.kind,
        source=request.source,
        formats=tuple(dict.fromkeys(name_of(each.format) for each in outputs)),
        stores=tuple(dict.fromkeys(place.partition(":")[0] for place in places)),
    )
    if not request.uses_cluster:
        seats = seat_request(request, parallelism)
        with LocalExecutor(
            seats.first(seats.parallelism),
            ENTRY,
            limits,
            warm_up=warm_up,
            looks=request.seats.numa != "off",
        ) as executor:
            executor.prepare()
            yield seats, executor
        return
    # Imported here: few runs use a cluster.
    from unloader.engine.cluster.opening import open_cluster

    _check_for_cluster(request)
    with open_cluster(
        request,
        parallelism,
        entry=ENTRY,
        warm_up=warm_up,
        limits=limits,
        stop=stop,
    ) as (seats, found):
        yield seats, found


def _check_for_cluster(request: Request) -> None:
    """Refuse what a cluster cannot do, or what must not go there."""
    for output in request.of_outputs():
        if any(lake_kind(each) for each in output.output.destinations):
            raise UsageError(
                "--cluster cannot write tables of a lakehouse yet",
                "leave --cluster out, or write files and add them to the table",
            )
        kind = destination_kind(output.output.destinations)
        if not is_kept(output.output.destinations) and kind != "null":
            raise UsageError(
                f"--cluster writes to a place that all its machines share, but {kind} belongs to "
                "one process",
                "give a directory of a network file system or an object store with --to, or leave "
                "--cluster out",
            )
    if request.concurrency is not None and request.concurrency.max_cpu is not None:
        raise UsageError(
            "--max-cpu measures the CPUs of this host, but --cluster works on other hosts",
            "leave out --max-cpu or --cluster",
        )
    statements = request.source.session.session_sql
    if any(map(holds_sql_password, statements)):
        raise UsageError(
            "a --session-sql contains a password, which would be sent to all machines of the "
            "cluster",
            "leave --cluster out, or let the database run that statement for each session",
        )
