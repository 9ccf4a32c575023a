"""From a request to the executor on its cluster: connected, checked, seated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from numa.model import ProcessLimits
from unloader.engine.cluster.agent import machine_id
from unloader.engine.cluster.connection import Connection
from unloader.engine.cluster.executor import DaskExecutor
from unloader.engine.cluster.orders import Opening
from unloader.engine.cluster.own import own_cluster
from unloader.engine.cluster.security import certificates_at
from unloader.engine.cluster.sharing import Home
from unloader.engine.cluster.team import Team
from unloader.errors import ConfigError, UsageError
from unloader.model import Preload, Request
from unloader.placement.seating import Seating, SeatPlan, machine, most_workers
from unloader.request.clusters import own_workers
from unloader.sources.registry import source_of
from writers.records import dataclass

_LEAST_SECONDS, _MOST_SECONDS = 5.0, 20.0
"""How long an agent or the parent may be silent: `--stall-timeout` within these limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How the processes of a run start on the machines of a cluster."""

    entry: str
    """See `numa.pool.Pool`."""
    warm_up: Preload
    limits: ProcessLimits
    workers: int
    """Processes of each Dask worker that start at once."""
    meanwhile: Callable[[], object]
    """Called while the cluster is being connected to, which takes its time."""


@contextmanager
def open_cluster(
    request: Request, parallelism: int | None, start: Start
) -> Iterator[tuple[SeatPlan, DaskExecutor]]:
    """Open an executor on the cluster of a request, with a seat for each worker it may want.

    All processes are gone at the end of the context.

    Args:
        request: What was asked for.
        parallelism: Of a plan made earlier; None is that of the request.
        start: How the processes start.

    Raises:
        ConfigError: The cluster does not trust us, has no worker, or one does not fit.
        ConnectFailed: It cannot be reached.
        UsageError: `--max-sessions` leaves none for a worker.
    """
    options = request.cluster
    assert options is not None
    assert options.address is not None
    certificates = None if options.security is None else certificates_at(options.security)
    _check_scheme(options.address, secured=certificates is not None)
    patience = min(max(request.retry.stall_seconds or _MOST_SECONDS, _LEAST_SECONDS), _MOST_SECONDS)
    with ExitStack() as held:
        address, own = options.address, own_workers(options.address)
        if own:
            address = held.enter_context(own_cluster(own))
        connection = Connection(address, certificates)
        held.callback(connection.close)
        start.meanwhile()
        connection.wait()
        pattern = Opening(
            agent="",
            entry=start.entry,
            limits=start.limits,
            options=request.seats,
            warm_up=start.warm_up,
            looks=request.seats.numa != "off",
            seats_of_machine=0,
            places=(),
            begin=start.workers,
            lease_seconds=patience,
        )
        team = Team(connection, pattern, request.source.kind)
        homes = team.greet()
        _check_source(request, homes)
        threads = sum(home.threads for home in homes)
        wanted = most_workers(request, parallelism, threads)
        seats = team.open(min(wanted, threads), homes)
        notices = team.notices
        if wanted > threads:
            text = f"the cluster has {threads} threads, so {threads} of {wanted} workers are used"
            notices = (*notices, text)
        with DaskExecutor(connection, team, held.pop_all().close) as executor:
            yield (
                SeatPlan(
                    topology=machine(),
                    # Where the seats are, the agents have decided.
                    options=replace(request.seats, numa="off"),
                    seating=Seating(seats=seats, memory_policy="local", notices=notices),
                ),
                executor,
            )


def _check_source(request: Request, homes: tuple[Home, ...]) -> None:
    """Refuse a source that other machines cannot read, and name one that is another machine."""
    reason = source_of(request.source.kind).one_machine
    others = [home for home in homes if home.machine != machine_id()]
    if reason and others:
        raise UsageError(
            f"{request.source.kind} cannot be read from {others[0].label}, which is another "
            f"machine: {reason}",
            "run without --cluster, or with --cluster local:N",
        )


def _check_scheme(address: str, *, secured: bool) -> None:
    if address.startswith("tls://") and not secured:
        raise ConfigError(
            f"{address} needs certificates",
            "give --cluster-security DIRECTORY, see docs/cluster.md",
        )
    if secured and not address.startswith("tls://"):
        raise ConfigError(
            f"--cluster-security does not apply to {address}, which is not encrypted",
            "write tls://HOST:PORT, or leave --cluster-security out",
        )
