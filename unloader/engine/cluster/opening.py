"""From a request to the executor on its cluster: connected, checked, seated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing, contextmanager

from msgspec import Struct
from msgspec.structs import replace

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
from unloader.model import Preload, Proof, Request, Snapshot, SourceSpec
from unloader.nouns import are, counted
from unloader.placement.seating import Seating, SeatPlan, machine, most_workers
from unloader.request.clusters import own_workers
from unloader.sources.registry import source_of

_LEAST_SECONDS, _MOST_SECONDS = 5.0, 20.0
"""How long an agent or the parent may be silent: `--stall-timeout` within these limits."""

_SETTLE_SECONDS = 5.0
"""How long a run that fails first waits for agents that are being opened, to end them in order."""


class Start(Struct, frozen=True, kw_only=True):
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
) -> Iterator[ComingWorkers]:
    """Begin to open an executor on the cluster of a request, with a seat for each worker it wants.

    All processes are gone at the end of the context.

    Args:
        request: What was asked for.
        parallelism: Of a plan made earlier; None is that of the request.
        start: How the processes start.

    Raises:
        ConfigError: The two sides do not trust one another.
        ConnectFailed: Nobody listens there, or the system refuses a process.
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

        def opened() -> tuple[SeatPlan, DaskExecutor]:
            connection.wait()
            seats = _seated(request, parallelism, team)
            return seats, DaskExecutor(connection, team, held.close)

        with closing(ComingWorkers(connection, opened, team.open_sessions)) as coming:
            start.meanwhile()
            yield coming


class ComingWorkers:
    """The workers of a cluster, which a thread of its own opens while the run is planned."""

    def __init__(
        self,
        connection: Connection,
        opened: Callable[[], tuple[SeatPlan, DaskExecutor]],
        ask: Callable[[Proof], None],
    ) -> None:
        """Begin to open them.

        Args:
            connection: To the cluster.
            opened: Opens them, and returns their seats and their executor.
            ask: Has those that are open open the session of a proof.
        """
        self._connection = connection
        self._opened = opened
        self._ask = ask
        self._found: Future[tuple[SeatPlan, DaskExecutor]] = Future()
        self._thread = threading.Thread(target=self._open, daemon=True, name="cluster opening")
        self._thread.start()

    @property
    def seats(self) -> SeatPlan:
        """The seats; waits for them.

        Raises:
            ConfigError: `distributed` is missing, the cluster has no worker, or one does not fit.
            ConnectFailed: It cannot be reached.
            UsageError: It cannot read the source, or `--max-sessions` leaves none for a worker.
        """
        return self._found.result()[0]

    @property
    def executor(self) -> DaskExecutor:
        """The executor; as `seats`."""
        return self._found.result()[1]

    def open_sessions(self, source: SourceSpec, snapshot: Snapshot) -> None:
        """Have one process of each Dask worker open its session, once it is there."""
        task = Proof(source=source, snapshot=snapshot, run_id="", places=())

        def ask(found: Future[tuple[SeatPlan, DaskExecutor]]) -> None:
            if found.exception() is None:
                self._ask(task)

        self._found.add_done_callback(ask)

    def close(self) -> None:
        """End all processes on all machines, and leave the cluster."""
        wait((self._found,), 0.0 if self._connection.is_lost else _SETTLE_SECONDS)
        if not self._found.done():
            self._connection.close()
            self._thread.join(_SETTLE_SECONDS)
        if self._found.done() and self._found.exception() is None:
            self._found.result()[1].close()

    def _open(self) -> None:
        try:
            self._found.set_result(self._opened())
        # Raised again in whichever thread wants the workers.
        except Exception as error:
            self._found.set_exception(error)


def _seated(request: Request, parallelism: int | None, team: Team) -> SeatPlan:
    """Open the agents of a run, and return the seats that they have.

    Raises:
        ConfigError: The cluster has no worker, or one does not fit.
        UsageError: It cannot read the source, or `--max-sessions` leaves none for a worker.
    """
    homes = team.greet()
    _check_source(request, homes)
    threads = sum(home.threads for home in homes)
    wanted = most_workers(request, parallelism, threads)
    seats = team.open(min(wanted, threads), homes)
    notices = team.notices
    if wanted > threads:
        text = (
            f"the cluster has {counted(threads, 'thread')}, so {threads} of {wanted} workers "
            f"{are(threads)} used"
        )
        notices = (*notices, text)
    return SeatPlan(
        topology=machine(),
        # Where the seats are, the agents have decided.
        options=replace(request.seats, numa="off"),
        seating=Seating(seats=seats, memory_policy="local", notices=notices),
    )


def _check_source(request: Request, homes: tuple[Home, ...]) -> None:
    """Refuse a source that other machines cannot read, and name one that is another machine."""
    reason = source_of(request.source.kind).one_machine
    others = [home for home in homes if home.machine != machine_id()]
    if reason and others:
        raise UsageError(
            f"{request.source.kind} cannot be read from {others[0].label}, which is on another "
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
